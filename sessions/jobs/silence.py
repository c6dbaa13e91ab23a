"""How long a job has not been heard of, as its watcher sees it.

Only changes of the job's files count, against a clock that never goes back: the clocks of two machines need not agree,
and setting one neither ends a job nor keeps one. Whoever begins to watch begins to count.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

_Mark = tuple[bytes, bool]


class Silence:
    """Counts for any number of jobs."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[_Mark, float]] = {}

    def of(self, folder: Path) -> float:
        """Look again, and return for how many seconds neither claim nor heartbeat of a job has changed."""
        now, mark = time.monotonic(), _mark(folder)
        before = self._seen.get(folder)
        if before is None or before[0] != mark:
            self._seen[folder] = mark, now
            return 0.0
        return now - before[1]

    def forget(self, folder: Path) -> None:
        """Begin to count anew."""
        self._seen.pop(folder, None)


def _mark(folder: Path) -> _Mark:
    beat = b""
    with suppress(OSError):
        beat = (folder / "heartbeat.json").read_bytes()
    return beat, (folder / "claim").exists()
