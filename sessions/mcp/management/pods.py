"""Sessions on pods, as a managing program sees them. A person has prepared each: `peergate pod up`."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import Any

from sessions.pages.overview import overview
from sessions.pods.connection import Channel
from sessions.pods.lifecycle import status_of
from sessions.pods.pod_record import PodPlace, place_of
from sessions.pods.protocol import Status
from sessions.pods.pull import pull
from sessions.run.run_layout import is_run

_PULLS = threading.Lock()
"""Two pulls of one pod would write the same files."""


def every(pods: Path) -> list[dict[str, Any]]:
    """Return the pods that are kept here, and the session of each as it was last pulled; none is asked."""
    results: list[dict[str, Any]] = []
    for path in sorted(pods.glob("*/pod.json")):
        place = place_of(pods, path.parent.name)
        record = place.read()
        seen_values = overview(place.run).as_json() if is_run(place.run) else {}
        visible = {name: seen_values.get(name) for name in ("state", "decision", "stage", "attempt")}
        price = {name: getattr(record.pod, name) for name in ("usd_per_hour", "max_cost_usd")}
        results.append(
            {"name": place.name, "host": record.pod.host, **price, "last_pulled": visible if seen_values else None}
        )
    return results


def require_pod(pods: Path, name: str) -> PodPlace:
    """Return the place of a pod; raises UserError for an unknown name."""
    place = place_of(pods, name)
    place.read()
    return place


def look(place: PodPlace) -> Status:
    """Ask a pod how its session is, and pull what is new of it.

    Raises:
        ConnectionLost: the pod is not reached.
        AuditDamage: what came from it does not hold, and is not taken.
    """
    record = place.read()
    with (
        _PULLS,
        closing(place.connection(record.pod)) as connection,
        Channel(connection, record.python, record.root, place.name) as channel,
    ):
        status, _ = status_of(channel, 0)
        if status.entries:
            pull(channel, place)
        return status
