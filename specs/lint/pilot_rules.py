"""Rules on a stage that names a pilot: it does the same on more data, and has to meet the same rates."""

from __future__ import annotations

from collections.abc import Iterator

from specs.session.session_spec import SessionSpec
from specs.stages.base.stage import Criterion, differing_parameters
from specs.stages.metric_catalog import METRICS
from specs.stages.registry import Stage
from specs.system.yaml.problems import LintProblem, suggest


def lint_pilot(spec: SessionSpec, index: int, stage: Stage) -> Iterator[LintProblem]:
    """A stage that names a pilot does the same on more data, and must meet the rates that the pilot had to meet."""
    if stage.pilot is None:
        return
    order = [earlier.name for earlier in spec.stages]
    alike = [earlier.name for earlier in spec.stages[:index] if earlier.kind == stage.kind]
    if stage.pilot in alike:
        pilot = spec.stage(stage.pilot)
        yield from _same(stage, pilot)
        yield from _check_pilot_criteria(stage, pilot)
        return
    sentence = "comes later" if stage.pilot in order[index:] else "is not an earlier stage"
    if stage.pilot in order[:index]:
        sentence = f"is of kind {spec.stage(stage.pilot).kind}"
    message = f"'{stage.pilot}' {sentence}; a pilot is an earlier stage of kind {stage.kind}"
    yield LintProblem(("pilot",), message, suggest(stage.pilot, alike, "there are"))


def _same(stage: Stage, pilot: Stage) -> Iterator[LintProblem]:
    """Inputs, parameters and ranges are those of the pilot; sizes may differ."""
    if stage.inputs != pilot.inputs:
        message = f"reads {dict(stage.inputs)}, its pilot '{pilot.name}' {dict(pilot.inputs)}"
        yield LintProblem(("inputs",), message, "a stage reads the inputs of its pilot")
    ours, theirs = stage.parameters.model_dump(mode="json"), pilot.parameters.model_dump(mode="json")
    for name in differing_parameters(ours, theirs):
        message = f"{name} is {ours.get(name)} here and {theirs.get(name)} at the pilot '{pilot.name}'"
        yield LintProblem(("parameters", name), message, "only sizes may differ")
    for name in differing_parameters(stage.ranges, pilot.ranges):
        message = f"the range of {name} is not that of the pilot '{pilot.name}'"
        yield LintProblem(("ranges",), message, "copy the ranges of the pilot")
    for name in differing_parameters(stage.choices, pilot.choices):
        message = f"the choices of {name} are not those of the pilot '{pilot.name}'"
        yield LintProblem(("choices",), message, "copy the choices of the pilot")


def _check_pilot_criteria(stage: Stage, pilot: Stage) -> Iterator[LintProblem]:
    """Every criterion of the pilot on a rate is one of the stage too, or a stricter one is."""
    for criterion in pilot.gate.criteria:
        metric = METRICS.get(criterion.metric)
        if (
            metric is None
            or metric.unit != "fraction"
            or any(_holds(current_criterion, criterion) for current_criterion in stage.gate.criteria)
        ):
            continue
        message = f"its pilot '{pilot.name}' must meet '{criterion}', but this stage need not"
        yield LintProblem(("gate",), message, "repeat the criterion, or write a stricter one")


def _holds(ours: Criterion, pilots: Criterion) -> bool:
    """Return whether what meets the first criterion meets the other one."""
    if ours.metric != pilots.metric:
        return False
    try:
        (sign, value), (text, limit) = ours.get_bound(), pilots.get_bound()
    except ValueError:  # Reported as a criterion without one bound.
        return True
    if sign[0] != text[0]:
        return False
    stricter = value > limit if sign[0] == ">" else value < limit
    return stricter or (value == limit and (sign == text or "=" in text))
