"""The judge of ``sft`` and ``dpo`` stages: the steps that a job logged, and the examples or pairs that it kept out."""

from __future__ import annotations

from typing import NamedTuple, cast

from reviews.checks.definition import manifest_of
from reviews.evidence.evidence import Evidence
from reviews.evidence.row_lines import Subjects, as_written
from reviews.evidence.row_reader import read_rows
from specs.stages.finetuning.parameters import DpoParameters, SftParameters, StopRule
from specs.stages.finetuning.rows import PairReading, PairScore, TrainingRow, ValidationRow
from specs.stages.registry import kind_of
from specs.system.errors import EvidenceMissing
from training.rules.finetuning.validation_split import (
    by_step,
    decide_stop,
    example_values,
    loss_of,
    measured_after,
    pair_values,
)


class OptimizerStep(NamedTuple):
    """An optimizer step, and which metrics it counts for."""

    row: TrainingRow
    first: bool
    """Whether it belongs to the first fifth of the steps, which is at least one step."""
    last: bool
    steepest: bool
    """None has a larger gradient norm."""


def steps_of(evidence: Evidence) -> tuple[TrainingRow, ...]:
    """Return the optimizer steps as they were logged.

    Errors as :func:`read_rows`, for a loss that is not a number too.
    """
    form = cast("type[TrainingRow]", kind_of(evidence.stage).rows["rows"])
    return read_rows(evidence.outputs.get("rows"), form, "training rows")


def kept_out(evidence: Evidence) -> tuple[PairScore, ...]:
    """Return the scores of the pairs kept out of training, none included; errors as :func:`read_rows`."""
    return read_rows(evidence.outputs.get("pairs"), PairScore, "scores of pairs", may_be_empty=True)


class Point(NamedTuple):
    """A kept example after a step, and which metrics it counts for."""

    row: ValidationRow
    first: bool
    saved: bool
    """Whether the weights after that step are the saved ones."""
    lowest: bool
    """Whether it belongs to the step after which the loss over all of them is lowest."""


def validation_of(evidence: Evidence) -> tuple[ValidationRow, ...]:
    """Return how examples that were kept out were read; errors as :func:`read_rows`."""
    return read_rows(evidence.outputs.get("validation"), ValidationRow, "scores of examples", may_be_empty=True)


def readings_of(evidence: Evidence) -> tuple[PairReading, ...]:
    """Return how pairs that were kept out were read during a training with a rule; errors as :func:`read_rows`."""
    return read_rows(evidence.outputs.get("validation"), PairReading, "readings of pairs")


class StopRecord(NamedTuple):
    """A registered rule, what it was decided by, and the decision, computed again."""

    rule: StopRule
    values: dict[int, float]
    """The metric of the rule by step."""
    saved: int
    """The step whose weights are saved."""
    last: int
    """The step after which the training ends."""
    planned: int
    """The step after which it ends where the rule does not end it."""


def stop_of(evidence: Evidence) -> StopRecord | None:
    """Return what a registered rule makes of the recorded readings; None where the stage registers none.

    Raises:
        EvidenceMissing: the readings are absent or unreadable, or the planned steps are not on record.
    """
    parameters = evidence.parameters.get("early_stopping") and evidence.parse_parameters(
        kind_of(evidence.stage).parameters
    )
    if isinstance(parameters, SftParameters) and parameters.early_stopping is not None:
        rule = parameters.early_stopping
        values = example_values(validation_of(evidence), rule)
    elif isinstance(parameters, DpoParameters) and parameters.early_stopping is not None:
        rule = parameters.early_stopping
        try:
            values = pair_values(readings_of(evidence), rule)
        except ValueError as error:
            raise EvidenceMissing(str(error), where="readings of pairs") from error
    else:
        return None
    decision, planned = decide_stop(values, rule), manifest_of(evidence).effective.get("planned_steps")
    if decision.best is None or not isinstance(planned, int):
        raise EvidenceMissing("no reading after a step, or no planned steps, by which the registered rule could decide")
    return StopRecord(rule, values, decision.best, decision.last or planned, planned)


def saved_step(evidence: Evidence) -> int:
    """Return the step whose weights are to be saved: the last, or what a registered rule says; errors of both."""
    stop = stop_of(evidence)
    return len(steps_of(evidence)) if stop is None else stop.saved


def due_readings(evidence: Evidence) -> tuple[int, ...]:
    """Return after which steps what is kept out had to be read; errors as :func:`stop_of`."""
    stop, count = stop_of(evidence), len(steps_of(evidence))
    if stop is None:
        return measured_after(count)
    return tuple(step for step in measured_after(stop.planned, stop.rule.every_steps) if step <= count)


def count_passes(evidence: Evidence) -> float:
    """Return the passes over the data that were made, at least 1: the granted ones, or fewer by a registered rule."""
    stop, epochs = stop_of(evidence), evidence.parameters["epochs"]
    return epochs if stop is None else max(1.0, epochs * len(steps_of(evidence)) / stop.planned)


def _points(evidence: Evidence) -> list[Point]:
    rows = validation_of(evidence)
    if not rows:
        return []
    steps, stop = by_step(rows), stop_of(evidence)
    saved = max(steps) if stop is None else stop.saved
    lowest = min(steps, key=lambda step: loss_of(steps[step]))
    return [Point(row, row.step == min(steps), row.step == saved, row.step == lowest) for row in rows]


def read(evidence: Evidence, output: str) -> Subjects | None:
    """Return steps, pairs or kept examples for the metrics; None where the stage kept none out.

    Raises:
        EvidenceMissing: as :func:`read_rows`, or the steps are not 1, 2, 3, ...
    """
    if output == "validation":
        points = _points(evidence) if evidence.parameters.get("validation_share") else []
        return as_written(points, output) if points else None
    if output != "rows":
        pairs = kept_out(evidence)
        return as_written(pairs, "pairs") if pairs or output == "pairs" else None
    rows = steps_of(evidence)
    n, fifth, largest = len(rows), max(1, len(rows) // 5), max(row.grad_norm for row in rows)
    if [row.step for row in rows] != list(range(1, n + 1)):
        raise EvidenceMissing("the steps are not 1, 2, 3, ... without a gap", where="training rows")
    return as_written(
        [OptimizerStep(row, at < fifth, at >= n - fifth, row.grad_norm == largest) for at, row in enumerate(rows)],
        output,
    )
