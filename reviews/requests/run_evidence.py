"""Reads the run folder of a session as claims (its report) and evidence (what was registered, measured and decided).

Data, raw rows and logs are not read; a report may quote a few rows, held-out ones too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from reviews.evidence.evidence import Evidence
from reviews.evidence.gather import gather
from reviews.evidence.readable_evidence import EvidenceBrowser
from reviews.evidence.row_lines import LineSelection
from reviews.history.history import History
from reviews.requests.file_reading import RequestReader
from reviews.trail.tables.pointer import is_trail
from specs.session.session_spec import ResolvedSpec
from specs.session_words import session_words
from specs.stages.base.metric import MetricSet
from specs.system.errors import EvidenceMissing
from specs.system.regular_files import read_regular
from specs.trail.gate_bodies import (
    AmendmentEntry,
    ChecksEntry,
    DecisionEntry,
    HumanAnswerEntry,
    MetricsEntry,
    OverrideEntry,
    RetractionEntry,
)
from specs.trail.verdict import CheckResult

TRAIL = "trail.sqlite"
STORE = "store"
REPORT = "report/report.md"
REPORT_JSON = "report/report.json"
RENDERED = "rendered again/"
"""Prefix of the name of a report rendered from the trail."""


class RunEvidence(NamedTuple):
    """What a session registered and measured, for rules to look numbers up in."""

    name: str
    resolved: ResolvedSpec
    measured: dict[tuple[str, int], MetricSet]
    """All attempts, by stage and number."""


def is_run(path: Path) -> bool:
    """Return whether a folder is the run folder of a session."""
    return is_trail(path / TRAIL)


def add_run(
    reader: RequestReader, run: Path, *, claims: bool, rendered: Mapping[str, bytes] | None = None
) -> RunEvidence:
    """Add a run folder to what is read, with ``claims`` its report too.

    ``rendered`` holds the report's files by path as the trail gives them: evidence against the saved ones. Then the
    report for machines is read too, which repeats the numbers of the other.

    Raises:
        EvidenceMissing: the session has no report yet, or its registration is gone.
        AuditDamage: the trail cannot be read, or something in the store has other bytes than its name.
    """
    run = run.resolve()
    history = History.read(run / TRAIL, run / STORE)
    resolved = history.resolved
    if claims:
        for name in (REPORT,) if rendered is None else (REPORT, REPORT_JSON):
            if not (run / name).is_file() or (rendered is not None and name not in rendered):
                hint = f"`peergate status {session_words(run)}` shows its state; a report comes with its end"
                raise EvidenceMissing("the session has no report yet", where=str(run), hint=hint)
            reader.add_text(f"{run.name}/{name}", read_regular(run / name), "claims")
            if rendered is not None:
                reader.add_text(f"{RENDERED}{run.name}/{name}", rendered[name], "evidence")
    reader.add_text(f"{run.name}/registered.json", _pretty(resolved.spec.model_dump(mode="json")), "evidence")
    measured = _load_metrics(history)
    for (stage, attempt), metrics in measured.items():
        reader.add_text(f"{run.name}/metrics/{stage}.{attempt}.json", _metrics(metrics), "evidence")
    reader.add_text(f"{run.name}/checks.json", _pretty(_checks(history)), "evidence")
    reader.add_text(f"{run.name}/decisions.json", _pretty(_decisions(history)), "evidence")
    return RunEvidence(run.name, resolved, measured)


def run_texts(run: Path) -> Iterator[tuple[str, str]]:
    """Yield what a reviewer may look into of a run folder, by name: registered data, and the files of each attempt.

    It is what a gate's reviewer may: texts of held-out items are withheld. Errors are those of :func:`add_run`.
    """
    run = run.resolve()
    history, numbers = History.read(run / TRAIL, run / STORE), dict[str, int]()
    data = EvidenceBrowser(history.resolved, history.store, None, _no_lines, numbers)
    yield from ((f"{run.name}.{name}", data.text(name)) for name in data.all_names)
    for stage, attempt in _load_metrics(history):
        evidence = gather(run, history, stage, attempt)
        shelf = EvidenceBrowser(history.resolved, history.store, evidence, _no_lines, numbers)
        for name in shelf.all_names:
            if name not in data.all_names:
                yield f"{run.name}.{stage}.{attempt}.{name}", shelf.text(name)


def _no_lines(evidence: Evidence, metric: str) -> tuple[LineSelection, ...]:
    """Return no lines: judging answers again, to find those of a metric, may take as long as the gate did."""
    return ()


def _load_metrics(history: History) -> dict[tuple[str, int], MetricSet]:
    return {
        (body.stage, body.attempt): MetricSet.model_validate_json(history.store.get(body.metrics))
        for body in (entry.body for entry in history.of(MetricsEntry))
        if body.metrics
    }


def _metrics(metrics: MetricSet) -> bytes:
    """Write a metric set with one line a metric, so that a place in it is a line."""
    lines = [f'  "stage": {json.dumps(metrics.stage)}', f'  "attempt": {metrics.attempt}']
    for id, metric in metrics.metrics.items():
        visible = {"value": metric.value} | metric.model_dump(mode="json", exclude={"id", "value"}, exclude_none=True)
        lines.append(f"  {json.dumps(id)}: {json.dumps(visible)}")
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _checks(history: History) -> list[dict[str, Any]]:
    return [
        {"stage": body.stage, "attempt": body.attempt, "check": result.id, "status": result.status}
        | {"blocking": result.blocking, "detail": result.detail}
        for body in (entry.body for entry in history.of(ChecksEntry))
        for result in map(CheckResult.model_validate, history.store.get_value(body.checks))
    ]


def _decisions(history: History) -> list[dict[str, Any]]:
    forms = (DecisionEntry, HumanAnswerEntry, OverrideEntry, AmendmentEntry, RetractionEntry)
    names = ("stage", "attempt", "outcome", "reasons", "answer", "reason")
    bodies = [(entry.kind, entry.body.model_dump(mode="json", exclude_none=True)) for entry in history.of(*forms)]
    return [{"entry": kind} | {name: body[name] for name in names if name in body} for kind, body in bodies]


def _pretty(value: Any) -> bytes:
    if isinstance(value, list):
        # One line each: a list of checks is read line by line.
        return ("[\n" + ",\n".join(json.dumps(element, ensure_ascii=False) for element in value) + "\n]\n").encode()
    return json.dumps(value, indent=2, ensure_ascii=False).encode()
