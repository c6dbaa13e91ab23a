"""What trackers are given of a session: metrics, curves, gates and how to find the report. A mirror, never a source.

Imports nothing of a gate: the processes of trackers load it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

PROJECT = "peergate"


class TrackedRun(NamedTuple):
    """One session as one run of a tracker."""

    name: str
    id: str
    """An id that is unique to this session, whatever others are called."""
    config: dict[str, Any]
    """What was registered: it never changes."""
    state: dict[str, Any]
    """How far the session is, its result, and which entries this was made from."""
    curves: Mapping[str, list[float]]
    """``STAGE.ATTEMPT/loss`` -> its values, by step from 1."""
    metrics: Mapping[str, float]
    """``STAGE.ATTEMPT/METRIC`` -> its value."""
    gates: list[tuple[str, int, str, str]]
    """Stage, attempt, decision, reviewer."""
    began: float
    """Seconds since 1970."""

    def summarize(self) -> list[str]:
        """Return what was written, for people."""
        return [f"{len(self.metrics)} metrics, {len(self.curves)} curves, {len(self.gates)} gates"]

    def parts(self) -> list[str]:
        """Return a name for everything in it: what a tracker has of these it does not get again."""
        gates = [f"gate {stage}.{attempt}" for stage, attempt, *_ in self.gates]
        return [*self.metrics, *self.curves, *gates, f"decision {self.state['decision']}"]

    def since(self, known: Collection[str]) -> TrackedRun:
        """Return it without the metrics and curves that a tracker has."""
        metrics = {name: value for name, value in self.metrics.items() if name not in known}
        return self._replace(
            metrics=metrics, curves={name: values for name, values in self.curves.items() if name not in known}
        )

    def as_json(self) -> bytes:
        """Return it for another process; :func:`tracked_of` reads it."""
        return json.dumps(self._asdict()).encode()


def tracked_of(data: bytes) -> TrackedRun:
    """Read what :meth:`TrackedRun.as_json` wrote."""
    results: dict[str, Any] = json.loads(data)
    results["gates"] = [(stage, attempt, outcome, reviewer) for stage, attempt, outcome, reviewer in results["gates"]]
    return TrackedRun(**results)
