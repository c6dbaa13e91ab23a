"""Rules for the acceptance criteria of a spec: each has a unique id, and something that can discharge it."""

from __future__ import annotations

from collections.abc import Iterator

from specs.lint.criterion_rules import lint_bound
from specs.session.acceptance import AcceptanceCriterion
from specs.session.session_spec import SessionSpec
from specs.stages.registry import kind_of
from specs.system.yaml.problems import LintProblem, Loc, suggest


def lint_acceptance(spec: SessionSpec) -> Iterator[LintProblem]:
    """Return what is wrong with the acceptance criteria."""
    names = [stage.name for stage in spec.stages]
    seen_counts: dict[str, int] = {}
    for index, criterion in enumerate(spec.criteria):
        loc: Loc = ("criteria", index)
        if (first := seen_counts.setdefault(criterion.id, index)) != index:
            message = f"id '{criterion.id}' is already used by criteria[{first}]"
            yield LintProblem((*loc, "id"), message, "ids are unique")
        if len(texts := [name for name in ("metric", "check", "ship") if getattr(criterion, name)]) > 1:
            message = f"'{criterion.id}' has {' and '.join(texts)}"
            yield LintProblem((*loc, texts[1]), message, "keep one, and give the other to another criterion")
        if criterion.stage not in names:
            yield LintProblem(
                (*loc, "stage"), f"unknown stage '{criterion.stage}'", suggest(criterion.stage, names, "stages")
            )
            continue
        if criterion.metric is not None:
            yield from lint_bound(spec, spec.stage(criterion.stage), criterion.metric, (*loc, "metric"))
        yield from _lint_applies(spec, criterion, loc)
        yield from _lint_model(spec, criterion, loc)


def _lint_model(spec: SessionSpec, acceptance_criterion: AcceptanceCriterion, loc: Loc) -> Iterator[LintProblem]:
    """Return why a criterion does not speak of the model that it names: what its stage reads and leaves decides."""
    if acceptance_criterion.model is None:
        if any(criterion.model for criterion in spec.criteria):
            yield LintProblem(
                loc, f"'{acceptance_criterion.id}' names no model, and others do", "name the model of each, or of none"
            )
        return
    stage = spec.stage(acceptance_criterion.stage)
    texts = [
        f"{acceptance_criterion.stage}.{name}" for name, kind in kind_of(stage).outputs.items() if kind == "checkpoint"
    ]
    read = [reference for name, reference in stage.inputs.items() if kind_of(stage).inputs.get(name) == "checkpoint"]
    if acceptance_criterion.model not in (*texts, *read):
        message = f"stage '{acceptance_criterion.stage}' neither reads nor leaves '{acceptance_criterion.model}'"
        yield LintProblem(
            (*loc, "model"), message, suggest(acceptance_criterion.model, [*read, *texts], "models of the stage")
        )


def _lint_applies(spec: SessionSpec, acceptance_criterion: AcceptanceCriterion, loc: Loc) -> Iterator[LintProblem]:
    if acceptance_criterion.applies_if is None:
        return
    stage, _, parameter = acceptance_criterion.applies_if.partition(".")
    names = [spec_stage.name for spec_stage in spec.stages]
    if stage not in names:
        message = f"unknown stage '{stage}'"
        yield LintProblem((*loc, "applies_if"), message, suggest(stage, names, "stages"))
    elif not hasattr(spec.stage(stage).parameters, parameter):
        known = list(type(spec.stage(stage).parameters).model_fields)
        message = f"stage '{stage}' has no parameter '{parameter}'"
        yield LintProblem((*loc, "applies_if"), message, suggest(parameter, known, "parameters"))
