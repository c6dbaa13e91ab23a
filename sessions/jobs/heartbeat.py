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
