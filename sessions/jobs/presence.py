"""Whether an orchestrator is there: it touches a file, and the wrappers of its jobs look whether that goes on.

Jobs outlive their orchestrator, because a night without it is no reason to lose a training run. Without a limit they
would outlive it for good where nobody ever resumes the session, and spend until their own time limit.

Only changes of the file count, against a clock that never goes back: setting the machine's clock neither ends a job
nor keeps one, and while the machine sleeps nothing is counted.
"""

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
