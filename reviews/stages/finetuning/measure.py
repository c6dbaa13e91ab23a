"""The judge of ``sft`` and ``dpo`` stages: the steps that a job logged and the pairs that it kept out."""

from __future__ import annotations

from typing import NamedTuple, cast

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_lines import Subjects, as_written
from reviews.evidence.row_reader import read_rows
from specs.errors import EvidenceMissing
from specs.stages.finetuning.rows import PairScore, TrainingRow
from specs.stages.registry import kind_of


class Step(NamedTuple):
    """An optimizer step, and which metrics it counts for."""

    row: TrainingRow
    first: bool
    """Of the first fifth of the steps, which is one step at least."""
    last: bool
    steepest: bool
    """None has a larger gradient norm."""


def steps_of(evidence: Evidence) -> tuple[TrainingRow, ...]:
    """Return the optimizer steps as they were logged; errors as :func:`read_rows`, for a loss that is no number too."""
    form = cast("type[TrainingRow]", kind_of(evidence.stage).rows["rows"])
    return read_rows(evidence.outputs.get("rows"), form, "training rows")


def kept_out(evidence: Evidence) -> tuple[PairScore, ...]:
    """Return the scores of the pairs kept out of training, none included; errors as :func:`read_rows`."""
    return read_rows(evidence.outputs.get("pairs"), PairScore, "scores of pairs", may_be_empty=True)


def read(evidence: Evidence, output: str) -> Subjects | None:
    """Return steps or pairs for the metrics; None for ``scored_pairs`` where no pair was kept out.

    Raises:
        EvidenceMissing: as :func:`read_rows`, or the steps are not 1, 2, 3, ...
    """
    if output != "rows":
        pairs = kept_out(evidence)
        return as_written(pairs, "pairs") if pairs or output == "pairs" else None
    rows = steps_of(evidence)
    n, fifth, largest = len(rows), max(1, len(rows) // 5), max(row.grad_norm for row in rows)
    if [row.step for row in rows] != list(range(1, n + 1)):
        raise EvidenceMissing("the steps are not 1, 2, 3, ... without a gap", where="training rows")
    return as_written(
        [Step(row, at < fifth, at >= n - fifth, row.grad_norm == largest) for at, row in enumerate(rows)], output
    )
