"""How long a job may wait before it begins, and hold its machine, as its watcher sees it.

Counted like silence (``heartbeat.py``): by a clock that nobody sets, from when somebody began to watch. What a watcher
that was killed had counted is begun anew, so a limit is reached later then, never earlier.
"""

from __future__ import annotations

import time
from pathlib import Path

from specs.job_records import JobOrder
from specs.resources import WAIT_HOURS, Resources

END_S = 120.0
"""How long a job that is told to end when its hours are over has for leaving an exit record."""


class Since:
    """Since when a job has been in what somebody calls a state, for any number of jobs and kinds of states."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Path, str], tuple[str, float]] = {}

    def of(self, folder: Path, kind: str, state: str) -> float:
        """Return for how many seconds a job has been in this state; another one begins at 0."""
        now = time.monotonic()
        before = self._seen.get((folder, kind))
        if before is None or before[0] != state:
            self._seen[folder, kind] = state, now
            return 0.0
        return now - before[1]


def wait_seconds(asked: Resources) -> float:
    """Return how long an attempt may wait before it begins."""
    return 3600 * (WAIT_HOURS if asked.max_wait_hours is None else asked.max_wait_hours)


def start_seconds(order: JobOrder, asked: Resources, least: float) -> float:
    """Return how long a machine that is paid for may be there before its job begins.

    Args:
        order: the job's.
        asked: what it asks for.
        least: granted in any case where no ``max_hours`` are stated: machines take minutes to start.
    """
    return max(least, order.max_seconds) if asked.max_hours is None else asked.max_hours * 3600
