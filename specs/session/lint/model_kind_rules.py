"""What follows from the declared kind of a model: a rule on judges, and notes on base models that nothing stops."""

from __future__ import annotations

from collections.abc import Iterator

from specs.session.lint.arm_rules import notes_on_controls
from specs.session.model_kind import kind_read
from specs.session.problems import LintProblem, Loc
from specs.session.session_spec import SessionSpec
from specs.stages.registry import kind_of


def lint_judges(spec: SessionSpec) -> Iterator[LintProblem]:
    """A judge that is declared base is not asked through a chat template."""
    for index, stage in enumerate(spec.stages):
        if kind_of(stage).chat_form and stage.parameters.form == "chat" and kind_read(spec, stage) == "base":
            loc: Loc = ("stages", index, "parameters", "form")
            model = stage.inputs.get("model", "model")
            message = f"form is chat, and the judge '{model}' is a base model"
            yield LintProblem(loc, message, "write form: completion, or name an instruct model")


def notes(spec: SessionSpec) -> Iterator[str]:
    """Yield what is allowed and seldom meant, one line each."""
    yield from notes_on_controls(spec)
    for stage in spec.stages:
        if not kind_of(stage).open_ended or stage.parameters.stops:
            continue
        if kind_read(spec, stage) == "base":
            yield (
                f"{stage.name}: a base model writes until its end token or {stage.parameters.max_new_tokens} tokens, "
                f'and no stops are given; what ends an answer is written stops: ["\\n\\n"] or the end mark it learned'
            )
