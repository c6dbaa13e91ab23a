"""Metrics that a kind declares over its rows: their values, and the lines they are computed from."""

from __future__ import annotations

from collections.abc import Sequence

from reviews.evidence.evidence import Evidence
from reviews.evidence.measured_value import Measured, share
from reviews.evidence.row_lines import Part, part
from reviews.evidence.row_reader import read_rows
from specs.digests import Contract
from specs.errors import EvidenceMissing
from specs.stages.kind import StageKind
from specs.stages.row_metric import RowMetric


def measure_rows(kind: StageKind, evidence: Evidence) -> dict[str, Measured]:
    """Return every metric that the kind declares over rows.

    Raises:
        EvidenceMissing: rows are absent or unreadable, or a metric's population is empty.
    """
    declared = [one for one in kind.metrics if isinstance(one, RowMetric)]
    rows = {output: _rows(kind, evidence, output) for output in {one.output for one in declared}}
    return {one.id: _measured(one, rows[one.output]) for one in declared}


def lines_of_rows(kind: StageKind, evidence: Evidence, metric: RowMetric) -> tuple[Part, ...]:
    """Return the lines of a metric's population; of a share first those that it counts.

    Raises:
        EvidenceMissing: the rows are absent or unreadable.
    """
    rows = _rows(kind, evidence, metric.output)
    over, counted = metric.over, metric.value.counted
    population = part(over.told, rows, over.fits, metric.output)
    if counted is None:
        return (population,)
    return (part(counted.told, rows, lambda row: over.fits(row) and counted.fits(row), metric.output), population)


def _rows(kind: StageKind, evidence: Evidence, output: str) -> tuple[Contract, ...]:
    return read_rows(evidence.outputs.get(output), kind.rows[output], f"{kind.name} {output}", may_be_empty=True)


def _measured(metric: RowMetric, rows: Sequence[Contract]) -> Measured:
    population = [row for row in rows if metric.over.fits(row)]
    if not population:
        raise EvidenceMissing(f"'{metric.id}' is over {metric.over.told}, and there are none", where="raw rows")
    if metric.value.counted is not None:
        return share(sum(map(metric.value.counted.fits, population)), len(population))
    return Measured(metric.value.of(population), len(population))
