"""Metrics that a kind declares over its rows: their values, and the lines they are computed from."""

from __future__ import annotations

from fractions import Fraction

from reviews.evidence.evidence import Evidence
from reviews.evidence.measured_value import MeasuredValue, share
from reviews.evidence.row_lines import LineSelection, Subjects, as_written
from reviews.evidence.row_reader import read_rows
from reviews.stages.judge import judge_of
from reviews.stages.sampled_rows import SAMPLED, read_stage_samples
from specs.stages.base.kind import StageKind
from specs.stages.base.metric import Population, RowMetric
from specs.system.errors import EvidenceMissing


def measure_rows(kind: StageKind, evidence: Evidence) -> dict[str, MeasuredValue]:
    """Return every metric that the kind declares over rows and that its judge does not compute.

    Raises:
        EvidenceMissing: rows are absent or unreadable, or a metric's population is empty and may not be.
    """
    declared = [metric for metric in kind.metrics if isinstance(metric, RowMetric) and metric.value.of is not None]
    subjects = {
        output: _subjects(kind, evidence, output)
        for output in dict.fromkeys(row_metric.output for row_metric in declared)
    }
    return {
        row_metric.id: _measure_metric(row_metric, matching_subjects)
        for row_metric in declared
        if (matching_subjects := subjects[row_metric.output]) is not None
    }


def lines_of_rows(kind: StageKind, evidence: Evidence, metric: RowMetric) -> tuple[LineSelection, ...]:
    """Return the lines a metric counts, then its population's where that is not every line; errors as for the rows."""
    population = _part(kind, evidence, metric.over, metric.output, None)
    parts = (_part(kind, evidence, over, over.output or metric.output, metric.over) for over in metric.value.parts)
    counted = [part for part in parts if part is not None]
    if population is not None and (not counted or len(population.lines) < population.of):
        counted.append(population)
    return tuple(counted)


def _part(
    kind: StageKind, evidence: Evidence, over: Population, output: str, within: Population | None
) -> LineSelection | None:
    subjects = _subjects(kind, evidence, output)
    if subjects is None:
        return None
    of = within if within is not None and (within.output or "rows") == output else None
    pairs = zip(subjects.lines, subjects.rows, strict=True)
    lines = {line for line, row in pairs if line and over.holds(row) and (of is None or of.holds(row))}
    return LineSelection(over.description, subjects.file, tuple(sorted(lines)), subjects.of)


def _subjects(kind: StageKind, evidence: Evidence, output: str) -> Subjects | None:
    """Return what the metrics over an output are computed from; None where this attempt has no such metrics."""
    if output == SAMPLED:
        return read_stage_samples(evidence).subjects()
    if read := judge_of(kind).read:
        return read(evidence, output)
    path, form = evidence.outputs.get(output), kind.rows[output]
    return as_written(read_rows(path, form, f"{kind.name} {output}", may_be_empty=True), output)


def _measure_metric(metric: RowMetric, subjects: Subjects) -> MeasuredValue:
    population = [row for row in subjects.rows if metric.over.holds(row)]
    n, value = len(population), metric.value
    if not n and metric.over.may_be_empty:
        return MeasuredValue(Fraction(0) if metric.unit == "fraction" else 0, 0)
    if not n or value.of is None:
        raise EvidenceMissing(f"'{metric.id}' needs {metric.over.description}, and none were written", where="raw rows")
    if value.interval:
        return share(sum(map(value.parts[0].holds, population)), n, subjects.of_item)
    return MeasuredValue(value.of(population), n)
