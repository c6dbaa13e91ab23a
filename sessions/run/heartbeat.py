"""Signs of life: of an orchestrator for its jobs, and of a job for its orchestrator."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from specs.system.regular_files import read_regular

BEAT = "lease.beat"
"""In the run folder."""

BEAT_EVERY_S = 5.0


@contextmanager
def repeating(step: Callable[[], bool | None], every_s: float, name: str) -> Generator[None]:
    """Call a step again and again from a thread until the block ends or the step returns False."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(every_s) and step() is not False:
            pass

    thread = threading.Thread(target=repeat, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def present(run: Path) -> Generator[None]:
    """Show from a thread that the orchestrator is there: a call to a model may take an hour."""
    beat(run)
    with repeating(partial(beat, run), BEAT_EVERY_S, "presence"):
        yield


def beat(run: Path) -> None:
    """Change the time of the file, which works on a full disk too."""
    path = run / BEAT
    with suppress(OSError):
        try:
            os.utime(path)
        except FileNotFoundError:
            path.touch()


def mark_of(path: Path) -> tuple[int, int] | None:
    """Return time and size of a file, which change with it; None without a file."""
    with suppress(OSError):
        status = path.stat()
        return status.st_mtime_ns, status.st_size
    return None


class Absence:
    """For how long a file has not changed, by a clock that no one sets."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last_mark, self._since = mark_of(path), time.monotonic()

    def seconds(self) -> float:
        """Look again, and return the seconds since the last look that found a change."""
        mark, now = mark_of(self._path), time.monotonic()
        if mark != self._last_mark:
            self._last_mark, self._since = mark, now
        return now - self._since


class Silence:
    """For how long something about a job has not changed, for any number of jobs.

    Time is counted by a clock that no one sets, from the first look. A watcher that replaces a killed one starts anew,
    so it reaches a limit later, never earlier.
    """

    def __init__(self) -> None:
        self._last_mark: dict[tuple[Path, str], tuple[object, float]] = {}

    def of(self, folder: Path) -> float:
        """Look again, and return for how many seconds neither claim nor heartbeat of a job has changed."""
        beat = b""
        with suppress(OSError):
            beat = read_regular(folder / "heartbeat.json", 1 << 20)
        return self.since(folder, "life", (beat, (folder / "claim").exists()))

    def since(self, folder: Path, kind: str, state: object) -> float:
        """Return for how many seconds a job has had this state of a kind; a new state begins at 0."""
        now = time.monotonic()
        before = self._last_mark.get((folder, kind))
        if before is None or before[0] != state:
            self._last_mark[folder, kind] = state, now
            return 0.0
        return now - before[1]
