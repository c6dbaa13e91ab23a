"""The judge of ``sft`` and ``dpo`` stages: the steps that a job logged, and the examples or pairs that it kept out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, cast

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_lines import Subjects, as_written
from reviews.evidence.row_reader import read_rows
from specs.stages.finetuning.rows import PairScore, TrainingRow, ValidationRow
from specs.stages.registry import kind_of
from specs.system.errors import EvidenceMissing


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
    last: bool
    lowest: bool
    """Whether it belongs to the step after which the loss over all of them is lowest."""


def validation_of(evidence: Evidence) -> tuple[ValidationRow, ...]:
    """Return how examples that were kept out were read; errors as :func:`read_rows`."""
    return read_rows(evidence.outputs.get("validation"), ValidationRow, "scores of examples", may_be_empty=True)


def by_step(rows: Sequence[ValidationRow]) -> dict[int, list[ValidationRow]]:
    """Return the rows of each step."""
    validation_rows: dict[int, list[ValidationRow]] = {}
    for row in rows:
        validation_rows.setdefault(row.step, []).append(row)
    return dict(sorted(validation_rows.items()))


def loss_of(rows: Sequence[ValidationRow]) -> float:
    """Return the loss over rows, in nats per token of the responses; infinite where no response has a token."""
    tokens = sum(row.tokens for row in rows)
    return -math.fsum(row.log_probability for row in rows) / tokens if tokens else math.inf


def _points(rows: Sequence[ValidationRow]) -> list[Point]:
    steps = by_step(rows)
    lowest = min(steps, key=lambda step: loss_of(steps[step]))
    return [Point(row, row.step == min(steps), row.step == max(steps), row.step == lowest) for row in rows]


def read(evidence: Evidence, output: str) -> Subjects | None:
    """Return steps, pairs or kept examples for the metrics; None where the stage kept none out.

    Raises:
        EvidenceMissing: as :func:`read_rows`, or the steps are not 1, 2, 3, ...
    """
    if output == "validation":
        rows = validation_of(evidence) if evidence.parameters.get("validation_share") else ()
        return as_written(_points(rows), output) if rows else None
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
