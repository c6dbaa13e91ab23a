"""One measured number: its definition, the rows and lines it came from, and where the report states it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reviews.audit.metric_lines import parts_of
from reviews.evidence.evidence import Evidence
from reviews.evidence.gather import gather
from reviews.evidence.row_lines import BASELINE, ROWS
from sessions.pages.report.report_check import ReportCheck
from sessions.pages.view.places import Read
from specs.stages.base.metric import MetricSet
from specs.system.errors import PeergateError, UserError
from specs.trail.gate_bodies import MetricsEntry
from specs.trail.session_bodies import ReportEntry

MOST_LINES = 400
"""Numbers of lines of one part that are links."""


def number_page(read: Read, stage: str, attempt: int, metric: str) -> dict[str, Any]:
    """Return a metric of an attempt, followed to its rows; of a closed session also through its report.

    Raises:
        UserError: the attempt has no such metric.
        EvidenceMissing: the metric set is not in the store.
        AuditDamage: it was changed.
    """
    measured = read.history.find(MetricsEntry, stage, attempt)
    digest = measured.body.metrics if measured else None
    metric_set = MetricSet.model_validate_json(read.store.get(digest)) if digest else None
    if metric_set is None or measured is None or metric not in metric_set.metrics:
        raise UserError(f"no measurement is called '{stage}.{attempt}.{metric}'")
    folder = read.place.folder
    facts: dict[str, Any] = {
        "metric": metric_set.metrics[metric],
        "entry": measured.seq,
        "metric_set": digest,
        "code": metric_set.code,
        "rows": metric_set.rows,
        "traced": None,
        "parts": [],
        "problem": "",
    }
    try:
        evidence = gather(folder, read.history[: measured.seq], stage, attempt)
        facts["parts"] = [
            {"part": part, "digest": _digest(evidence, part.file, read), "shown": part.lines[:MOST_LINES]}
            for part in parts_of(evidence, metric)
        ]
        if read.history.find(ReportEntry):
            check = ReportCheck(folder, read.history, apart=not read.place.is_export)
            facts["traced"] = check.trace(check.find_metrics(f"{stage}.{attempt}.{metric}")[0])
    except PeergateError as error:
        facts["problem"] = str(error)
    return facts


def _digest(evidence: Evidence, file: str, read: Read) -> str:
    """Return the digest of the file of a part; empty if it is not kept in the store."""
    path = evidence.baseline_rows if file == BASELINE else evidence.outputs.get(file or ROWS)
    return _name_in(read.store.root, path) if path is not None else ""


def _name_in(root: Path, path: Path) -> str:
    if not path.is_relative_to(root):
        return ""
    return f"sha256:{''.join(path.relative_to(root).parts)}"
