"""What trackers are given of a session: metrics, curves, gates and how to find the report. A mirror, never a source.

Trackers send what they get to servers, so nothing in it quotes an item, an answer or the reason of a gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from reviews.evidence.gather import registered_spec
from sessions.exports.formats import Source
from sessions.report.report import steps_of
from sessions.report.trail_page import gates_of
from specs.errors import EvidenceMissing
from specs.masking import current

PROJECT = "peergate"


class Tracked(NamedTuple):
    """One session as one run of a tracker."""

    name: str
    config: dict[str, Any]
    """What was registered, and which entries this was made from."""
    curves: Mapping[str, list[float]]
    """``STAGE.ATTEMPT/loss`` -> its values, by step from 1."""
    metrics: Mapping[str, float]
    """``STAGE.ATTEMPT/METRIC`` -> its value."""
    gates: list[tuple[str, int, str, str]]
    """Stage, attempt, decision, reviewer."""
    began: float
    """Seconds since 1970."""

    def told(self) -> list[str]:
        """Return what was written, for people."""
        return [f"{len(self.metrics)} metrics, {len(self.curves)} curves, {len(self.gates)} gates"]


def tracked(source: Source) -> Tracked:
    """Return what a tracker is given.

    Raises:
        EvidenceMissing: nothing was measured yet, or what was is not in the store.
    """
    entries, store = source.entries, source.store
    resolved, _ = registered_spec(entries, store)
    metrics: dict[str, float] = {}
    for one in entries:
        if one.entry.kind == "metrics" and one.body["metrics"]:
            found = store.get_value(one.body["metrics"])["metrics"]
            metrics |= {f"{one.body['stage']}.{one.body['attempt']}/{id}": each["value"] for id, each in found.items()}
    if not metrics:
        raise EvidenceMissing("nothing was measured yet", where=str(source.run))
    curves = {
        f"{stage}.{attempt}/{name}": values
        for name in ("loss", "learning_rate")
        for (stage, attempt), values in steps_of(entries, store, name).items()
        if values
    }
    gates = [(one["stage"], one["attempt"], one["outcome"], one["reviewer"]) for one in gates_of(entries, store)]
    opened, closing, spec = entries[0], entries[-1], resolved.spec
    report = next((one.body["files"] for one in entries if one.entry.kind == "report"), {})
    config = {
        "session": opened.entry.session,
        "registration": opened.body["registration"],
        "task": spec.task,
        "model": spec.model.source,
        "analysis": spec.analysis.model_dump(mode="json"),
        "decision": next((one.body["decision"] for one in entries if one.entry.kind == "close"), "open"),
        "entries": len(entries),
        "newest_entry": closing.digest,
        "report": report,
        "verify": f"peergate audit verify {opened.entry.session}",
    }
    return Tracked(
        opened.entry.session, current().value(config), curves, metrics, gates, int(opened.entry.time_ns) / 1e9
    )
