"""From a metric to the raw rows it was computed from, by line.

Lines count from 1 in the stored file of rows. The first part holds the lines that the metric counts, or that its mean,
median or sum is over; the last part its population, if that is only some rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reviews.comparison.arms import ARM_METRICS
from reviews.comparison.transfer import TRANSFER_METRICS, list_transfer_stages
from reviews.evidence.evidence import Evidence
from reviews.evidence.row_lines import BASELINE, ROWS, LineSelection, part
from reviews.evidence.row_reader import read_rows
from reviews.stages.evaluation.judged_answers import Answered, read_judged_items, share_right
from reviews.stages.row_metrics import lines_of_rows
from specs.stages.base.metric import RowMetric
from specs.stages.metric_catalog import METRICS
from specs.stages.registry import kind_of
from specs.system.digests import Contract
from specs.system.exact import Number


def parts_of(evidence: Evidence, metric: str) -> tuple[LineSelection, ...]:
    """Return the lines that a metric counts, or is over; raises EvidenceMissing if rows are absent or unreadable."""
    kind = kind_of(evidence.stage)
    if metric in TRANSFER_METRICS:
        names = list_transfer_stages(evidence.resolved.spec.analysis)
        arms = [(name, evidence.arms[name].rows if name in evidence.arms else None) for name in names]
        stages = [replace(evidence, stage=evidence.resolved.spec.stage(name)) for name in names[1:]]
        return _list_changed_items(stages[0], metric, *arms) if stages else ()
    if metric in ARM_METRICS:
        return tuple(_list_leading_items(evidence, kind.rows["rows"]))
    if METRICS[metric].scope in ("comparison", "rule"):
        sides = (BASELINE, evidence.baseline_rows), (ROWS, evidence.outputs.get("rows"))
        return _list_changed_items(evidence, metric, *sides)
    declared = next((metric_definition for metric_definition in kind.metrics if metric_definition.id == metric), None)
    return lines_of_rows(kind, evidence, declared) if isinstance(declared, RowMetric) else ()


def _list_changed_items(
    evidence: Evidence, metric: str, earlier: tuple[str, Path | None], later: tuple[str, Path | None]
) -> tuple[LineSelection, ...]:
    """Return the items that were gained and lost, in the rows of both sides, which have a name each."""
    form = kind_of(evidence.stage).rows["rows"]
    files = [(name, read_rows(path, form, f"{name} rows")) for name, path in (later, earlier)]
    before, after = (_map_passes(read_judged_items(evidence, path, f"{name} rows")) for name, path in (earlier, later))
    pairs: tuple[tuple[str, Callable[[Any], bool]], ...] = (
        ("gained: wrong before, right after", lambda row: after[row.item] > before[row.item]),
        ("lost: right before, wrong after", lambda row: before[row.item] > after[row.item]),
    )
    wanted = [pair for pair in pairs if metric not in ("gained", "lost") or pair[0].startswith(metric)]
    return tuple(part(what, rows, fits, file) for what, fits in wanted for file, rows in files)


def _list_leading_items(evidence: Evidence, form: type[Contract]) -> Iterator[LineSelection]:
    """Yield, for each arm to be beaten, the items of which only the treatment, or only the arm, is right."""
    rows = read_rows(evidence.outputs.get("rows"), form, "treatment rows")
    ours = _map_passes(read_judged_items(evidence, evidence.outputs.get("rows"), "treatment rows"))
    for arm in evidence.resolved.spec.analysis.arms:
        if arm.beaten:
            theirs = _map_passes(read_judged_items(evidence, evidence.arms[arm.stage].rows, f"rows of '{arm.name}'"))
            for what, first, second in (("right here alone", ours, theirs), ("right there alone", theirs, ours)):
                fits = {item for item in first if first[item] > second[item]}
                yield part(
                    f"against '{arm.name}': {what}", [getattr(row, "item", "") for row in rows], fits.__contains__
                )


def _map_passes(judged: Sequence[Answered]) -> dict[str, Number]:
    return dict(zip(dict.fromkeys(value.item.id for value in judged), share_right(judged), strict=True))
