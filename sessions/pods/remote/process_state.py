"""On the pod: which processes are there, and how far the session is."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil

from reviews.trail.store import write_durably
from reviews.trail.tables.open_table import read_entries
from sessions.jobs.claim import is_alive, started_ticks, this_process
from sessions.pods.remote.pod_layout import Layout
from sessions.run.run_layout import TRAIL
from specs.errors import PeergateError

KEEPER, ORCHESTRATOR, EXIT, SINCE = "keeper.json", "orchestrator.json", "exit.json", "since.json"
ATTACHED, PULLED, ENDING, ENDED = "attached", "pulled.json", "ending.json", "ended.json"


def read(path: Path) -> dict[str, Any] | None:
    """Return a small JSON file of the keeper; None when it is not there or no object."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write(path: Path, value: Mapping[str, Any]) -> None:
    """Write a small JSON file so that it is whole or as before."""
    write_durably(path, json.dumps(value).encode())


def identity(pid: int) -> dict[str, Any]:
    """Return what tells a process from another one that gets its id later.

    Raises:
        psutil.Error: there is none.
    """
    started = psutil.Process(pid).create_time()
    return this_process("pod") | {"pid": pid, "started": started, "ticks": started_ticks(pid)}


def lives(path: Path) -> bool:
    """Say whether the process a file speaks of is there."""
    owner = read(path)
    try:
        return owner is not None and is_alive(owner)
    except (KeyError, TypeError, ValueError):
        return False


def orchestrator(layout: Layout) -> dict[str, Any]:
    """Return state, pid and exit code of the newest orchestrator."""
    told = read(layout.own / ORCHESTRATOR)
    if told is None:
        return {"orchestrator": "never"}
    pid = told.get("pid") if isinstance(told.get("pid"), int) else None
    if lives(layout.own / ORCHESTRATOR):
        return {"orchestrator": "running", "pid": pid}
    ended = read(layout.own / EXIT)
    if ended is None or ended.get("number") != told.get("number"):
        # A keeper that is there has not looked yet; without one nobody is going to say.
        return {"orchestrator": "running" if lives(layout.own / KEEPER) else "gone", "pid": pid}
    if isinstance(ended.get("code"), int):
        return {"orchestrator": "ended", "pid": pid, "code": ended["code"]}
    return {"orchestrator": "gone", "pid": pid}


class Clock:
    """Hours since the first `pod up`: by the clock, or by what was counted when the clock was set back."""

    def __init__(self, layout: Layout) -> None:
        self._path = layout.own / SINCE
        told = read(self._path)
        if told is None:
            told = {"first": time.time(), "counted": 0.0}
            write(self._path, told)
        self.first, self.counted = float(told["first"]), float(told["counted"])
        self._seen = time.monotonic()

    def hours(self) -> float:
        """Return the hours so far."""
        running = self.counted + time.monotonic() - self._seen
        return max(time.time() - self.first, running) / 3600

    def save(self) -> None:
        """Keep what was counted."""
        now = time.monotonic()
        self.counted, self._seen = self.counted + now - self._seen, now
        write(self._path, {"first": self.first, "counted": self.counted})


class Progress:
    """How many entries and gates the trail has; read again only when its files changed."""

    def __init__(self, layout: Layout) -> None:
        self._path = layout.run / TRAIL
        self._seen: Any = None
        self._told: dict[str, Any] = {"entries": 0, "gates": 0, "closed": False}

    def told(self) -> dict[str, Any]:
        """Return entries, gates and whether the session is closed."""
        marks = [_mark(self._path), _mark(self._path.with_name(f"{TRAIL}-wal"))]
        if marks != self._seen and marks[0] is not None:
            with suppress(PeergateError, sqlite3.Error):
                entries = read_entries(self._path)
                kinds = [one.entry.kind for one in entries]
                gates = kinds.count("decision")
                self._told = {"entries": len(entries), "gates": gates, "closed": "close" in kinds}
            self._seen = marks
        return self._told


def _mark(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def snapshot(layout: Layout) -> tuple[bytes, bytes | None]:
    """Return the bytes of the trail at one moment, and of its seal if the file is at rest.

    Raises:
        OSError: it is not there.
        sqlite3.Error: it cannot be read.
    """
    path = layout.run / TRAIL
    wal, seal = path.with_name(f"{TRAIL}-wal"), path.with_suffix(".seal")
    if wal.exists() and not lives(layout.own / ORCHESTRATOR):
        # Whoever was killed left its log behind; the last one to close the file takes it in.
        with closing(sqlite3.connect(path, timeout=30)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    if not wal.exists() or wal.stat().st_size == 0:
        before = _mark(path)
        data, sealed = path.read_bytes(), seal.read_bytes() if seal.exists() else None
        if before == _mark(path) and (not wal.exists() or wal.stat().st_size == 0):
            return data, sealed
    copy = layout.own / "snapshot.sqlite"
    copy.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(path, timeout=30)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
            target.execute("PRAGMA journal_mode=DELETE")
        return copy.read_bytes(), None
    finally:
        copy.unlink(missing_ok=True)
