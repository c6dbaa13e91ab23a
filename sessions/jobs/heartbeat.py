"""Signs of life: of an orchestrator for its jobs, and of a job for its orchestrator."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

BEAT = "lease.beat"
"""In the run folder."""

BEAT_EVERY_S = 5.0


@contextmanager
def present(run: Path) -> Generator[None]:
    """Show from a thread of its own that the orchestrator is there: a call to a model may take an hour."""
    gone = threading.Event()

    def go_on() -> None:
        while not gone.is_set():
            beat(run)
            gone.wait(BEAT_EVERY_S)

    thread = threading.Thread(target=go_on, name="presence", daemon=True)
    thread.start()
    try:
        yield
    finally:
        gone.set()
        thread.join()


def beat(run: Path) -> None:
    """Change the time of the file; a disk that is full takes that too."""
    path = run / BEAT
    with suppress(OSError):
        try:
            os.utime(path)
        except FileNotFoundError:
            path.touch()


class Absence:
    """How long no orchestrator has been there, as a job sees it."""

    def __init__(self, run: Path, limit_s: float | None) -> None:
        self._path = run / BEAT
        self._limit_s = limit_s
        self._seen = self._mark()
        self._since = time.monotonic()

    def is_too_long(self) -> bool:
        """Look again, and say whether the limit is reached."""
        mark, now = self._mark(), time.monotonic()
        if mark != self._seen:
            self._seen, self._since = mark, now
        return self._limit_s is not None and now - self._since > self._limit_s

    def _mark(self) -> int | None:
        try:
            return self._path.stat().st_mtime_ns
        except OSError:
            return None


class Silence:
    """For how long something about a job has not changed, for any number of jobs.

    Time is counted by a clock that nobody sets, from the first look. A watcher that replaces a killed one counts anew,
    so it reaches a limit later, never earlier.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[Path, str], tuple[object, float]] = {}

    def of(self, folder: Path) -> float:
        """Look again, and return for how many seconds neither claim nor heartbeat of a job has changed."""
        beat = b""
        with suppress(OSError):
            beat = (folder / "heartbeat.json").read_bytes()
        return self.since(folder, "life", (beat, (folder / "claim").exists()))

    def since(self, folder: Path, kind: str, state: object) -> float:
        """Return for how many seconds a job has been in this state of a kind of states; another one begins at 0."""
        now = time.monotonic()
        before = self._seen.get((folder, kind))
        if before is None or before[0] != state:
            self._seen[folder, kind] = state, now
            return 0.0
        return now - before[1]
