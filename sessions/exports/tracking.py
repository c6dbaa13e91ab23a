"""Reads from a session's trail what trackers are given of it.

Trackers send what they get to servers, so nothing in it quotes an item, an answer or the reason of a gate.
"""

from __future__ import annotations

from sessions.exports.source import ExportSource
from sessions.exports.tracked_run import TrackedRun
from sessions.pages.report.page_result import page_result
from sessions.pages.report.report import steps_of
from sessions.pages.report.trail_page import gates_of
from specs.system.errors import EvidenceMissing
from specs.system.masking import current
from specs.trail.gate_bodies import MetricsEntry
from specs.trail.session_bodies import CloseEntry, ReportEntry


def make_tracked_run(source: ExportSource) -> TrackedRun:
    """Return what a tracker is given.

    Raises:
        EvidenceMissing: nothing was measured yet, or what was is not in the store.
    """
    history = source.history
    metrics: dict[str, float] = {}
    for body in (entry.body for entry in history.of(MetricsEntry)):
        if metric_set := history.attempt(body.stage, body.attempt).metric_set:
            metrics |= {f"{body.stage}.{body.attempt}/{id}": metric.value for id, metric in metric_set.metrics.items()}
    if not metrics:
        raise EvidenceMissing("nothing was measured yet", where=str(source.run))
    curves = {
        f"{stage}.{attempt}/{name}": values
        for name in ("loss", "learning_rate")
        for (stage, attempt), values in steps_of(history, name).items()
        if values
    }
    gates = [(gate["stage"], gate["attempt"], gate["outcome"], gate["reviewer"]) for gate in gates_of(history)]
    opened, spec = history[0], history.resolved.spec
    result, closed, report = page_result(history), history.newest(CloseEntry), history.newest(ReportEntry)
    config = {
        "session": opened.session,
        "registration": history.opening.registration,
        "task": spec.task,
        "model": spec.model.source,
        "analysis": spec.analysis.model_dump(mode="json"),
        "verify": f"peergate audit verify {opened.session}",
    }
    state = {
        "decision": closed.body.decision if closed else "open",
        "result": result["sentence"] if result else "",
        "entries": len(history),
        "newest_entry": history[-1].digest,
        "report": report.body.files if report else {},
    }
    return TrackedRun(
        name=opened.session,
        id=f"{opened.session}-{opened.digest.removeprefix('sha256:')[:12]}",
        config=current().value(config),
        state=current().value(state),
        curves=curves,
        metrics=metrics,
        gates=gates,
        began=opened.time_ns / 1e9,
    )
