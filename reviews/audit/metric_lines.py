"""From a metric to the raw rows it was computed from: computed again, and the lines that made it up.

Lines count from 1 in the file of rows, which the content store keeps under its digest. The first part is what the
metric counts, or what its mean, median or sum is over; where only some rows are its population, the last part says
which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_lines import BASELINE, ROWS, Part, chosen, part
from reviews.evidence.row_reader import read_rows
from reviews.stages.evaluation.judged_answers import Answered, answered
from reviews.stages.judge import judge_of
from reviews.stages.row_metrics import lines_of_rows
from reviews.stages.sampled_rows import counted_by, lines_of
from specs.digests import Contract
from specs.stages.metric_catalog import METRICS
from specs.stages.registry import kind_of
from specs.stages.row_metric import RowMetric

__all__ = ["BASELINE", "ROWS", "Part", "parts_of", "ranges"]


def parts_of(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    """Return the lines that a metric counts; for a mean or a sum those it is over.

    Raises:
        EvidenceMissing: the rows are absent or unreadable.
    """
    kind = kind_of(evidence.stage)
    if metric in counted_by(kind):
        lines, found = lines_of(evidence, metric)
        rows = range(found.of)
        return (chosen("what the metric counts", rows, lines), chosen("what was sampled", rows, found.lines))
    if METRICS[metric].scope in ("comparison", "rule"):
        return _compared(evidence, metric, kind.rows["rows"])
    declared = next((one for one in kind.metrics if one.id == metric), None)
    if isinstance(declared, RowMetric):
        return lines_of_rows(kind, evidence, declared)
    trace = judge_of(kind).trace
    return trace(evidence, metric) if trace else ()


def _compared(evidence: Evidence, metric: str, form: type[Contract]) -> tuple[Part, ...]:
    """Return the items that were gained and lost, in the rows of both arms."""
    rows = read_rows(evidence.outputs.get("rows"), form, "treatment rows")
    other = read_rows(evidence.baseline_rows, form, "baseline rows")
    after = _passed(answered(evidence, evidence.outputs.get("rows"), "treatment rows"))
    before = _passed(answered(evidence, evidence.baseline_rows, "baseline rows"))
    pairs: tuple[tuple[str, Callable[[Any], bool]], ...] = (
        ("gained: wrong before, right after", lambda row: after[row.item] and not before[row.item]),
        ("lost: right before, wrong after", lambda row: before[row.item] and not after[row.item]),
    )
    wanted = [pair for pair in pairs if metric not in ("gained", "lost") or pair[0].startswith(metric)]
    return tuple(
        part(what, arm, fits, file) for what, fits in wanted for file, arm in ((ROWS, rows), (BASELINE, other))
    )


def _passed(judged: Iterable[Answered]) -> dict[str, bool]:
    return {one.item.id: one.passed for one in judged}


def ranges(lines: Iterable[int]) -> str:
    """Write line numbers for people: ``1-3, 7``."""
    found: list[list[int]] = []
    for line in lines:
        if found and line == found[-1][1] + 1:
            found[-1][1] = line
        else:
            found.append([line, line])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
