"""Rules for the acceptance criteria of a spec: each has an id of its own, and something that can discharge it."""

from __future__ import annotations

from collections.abc import Iterator

from specs.session.acceptance import AcceptanceCriterion
from specs.session.lint.criterion_rules import lint_bound
from specs.session.problems import LintProblem, Loc, suggest
from specs.session.session_spec import SessionSpec
from specs.stages.registry import kind_of


def lint_acceptance(spec: SessionSpec) -> Iterator[LintProblem]:
    """Return what is wrong with the acceptance criteria."""
    names = [one.name for one in spec.stages]
    seen: dict[str, int] = {}
    for index, one in enumerate(spec.criteria):
        loc: Loc = ("criteria", index)
        if (first := seen.setdefault(one.id, index)) != index:
            message = f"id '{one.id}' is already used by criteria[{first}]"
            yield LintProblem((*loc, "id"), message, "give each its own id, once and for all")
        if len(given := [name for name in ("metric", "check", "ship") if getattr(one, name)]) > 1:
            message = f"'{one.id}' has {' and '.join(given)}"
            yield LintProblem((*loc, given[1]), message, "give one of them, and another criterion the other")
        if one.stage not in names:
            yield LintProblem((*loc, "stage"), f"there is no stage '{one.stage}'", suggest(one.stage, names, "stages"))
            continue
        if one.metric is not None:
            yield from lint_bound(spec, spec.stage(one.stage), one.metric, (*loc, "metric"))
        yield from _lint_applies(spec, one, loc)
        yield from _lint_model(spec, one, loc)


def _lint_model(spec: SessionSpec, one: AcceptanceCriterion, loc: Loc) -> Iterator[LintProblem]:
    """Return why a criterion does not speak of the model that it names: what its stage reads and leaves decides."""
    if one.model is None:
        if any(each.model for each in spec.criteria):
            yield LintProblem(loc, f"'{one.id}' names no model, and others do", "name the model of each, or of none")
        return
    stage = spec.stage(one.stage)
    left = [f"{one.stage}.{name}" for name, kind in kind_of(stage).outputs.items() if kind == "checkpoint"]
    read = [given for name, given in stage.inputs.items() if kind_of(stage).inputs.get(name) == "checkpoint"]
    if one.model not in (*left, *read):
        message = f"stage '{one.stage}' neither reads nor leaves '{one.model}'"
        yield LintProblem((*loc, "model"), message, suggest(one.model, [*read, *left], "models of the stage"))


def _lint_applies(spec: SessionSpec, one: AcceptanceCriterion, loc: Loc) -> Iterator[LintProblem]:
    if one.applies_if is None:
        return
    stage, _, parameter = one.applies_if.partition(".")
    names = [each.name for each in spec.stages]
    if stage not in names:
        message = f"there is no stage '{stage}'"
        yield LintProblem((*loc, "applies_if"), message, suggest(stage, names, "stages"))
    elif not hasattr(spec.stage(stage).parameters, parameter):
        known = list(type(spec.stage(stage).parameters).model_fields)
        message = f"stage '{stage}' has no parameter '{parameter}'"
        yield LintProblem((*loc, "applies_if"), message, suggest(parameter, known, "parameters"))
