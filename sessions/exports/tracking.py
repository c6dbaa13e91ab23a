"""Reads from a session's trail what trackers are given of it.

Trackers send what they get to servers, so nothing in it quotes an item, an answer or the reason of a gate.
"""

from __future__ import annotations

from reviews.evidence.registered_evidence import registered_spec
from sessions.exports.source import ExportSource
from sessions.exports.tracked_run import TrackedRun
from sessions.pages.report.page_result import page_result
from sessions.pages.report.report import steps_of
from sessions.pages.report.trail_page import gates_of
from specs.system.errors import EvidenceMissing
from specs.system.masking import current


def make_tracked_run(source: ExportSource) -> TrackedRun:
    """Return what a tracker is given.

    Raises:
        EvidenceMissing: nothing was measured yet, or what was is not in the store.
    """
    entries, store = source.entries, source.store
    resolved, _ = registered_spec(entries, store)
    metrics: dict[str, float] = {}
    for entry in entries:
        if entry.kind == "metrics" and entry.raw["metrics"]:
            matching_metrics = store.get_value(entry.raw["metrics"])["metrics"]
            metrics |= {
                f"{entry.raw['stage']}.{entry.raw['attempt']}/{id}": each["value"]
                for id, each in matching_metrics.items()
            }
    if not metrics:
        raise EvidenceMissing("nothing was measured yet", where=str(source.run))
    curves = {
        f"{stage}.{attempt}/{name}": values
        for name in ("loss", "learning_rate")
        for (stage, attempt), values in steps_of(entries, store, name).items()
        if values
    }
    gates = [
        (value["stage"], value["attempt"], value["outcome"], value["reviewer"]) for value in gates_of(entries, store)
    ]
    opened, spec = entries[0], resolved.spec
    result = page_result(list(entries), store)
    config = {
        "session": opened.session,
        "registration": opened.raw["registration"],
        "task": spec.task,
        "model": spec.model.source,
        "analysis": spec.analysis.model_dump(mode="json"),
        "verify": f"peergate audit verify {opened.session}",
    }
    state = {
        "decision": next((entry.raw["decision"] for entry in entries if entry.kind == "close"), "open"),
        "result": result["sentence"] if result else "",
        "entries": len(entries),
        "newest_entry": entries[-1].digest,
        "report": next((entry.raw["files"] for entry in entries if entry.kind == "report"), {}),
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
