"""On the pod: which processes run, and how far the session is."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil

from reviews.trail.chain.store import write_durably
from reviews.trail.tables.open_table import read_entries
from sessions.pods.remote.pod_layout import Layout
from sessions.run.claim import lives, read_record, started_ticks, this_process
from sessions.run.heartbeat import mark_of
from sessions.run.run_layout import TRAIL
from specs.system.errors import PeergateError

KEEPER, ORCHESTRATOR, EXIT, SINCE = "keeper.json", "orchestrator.json", "exit.json", "since.json"
ATTACHED, PULLED, ENDING, ENDED = "attached", "pulled.json", "ending.json", "ended.json"


def write(path: Path, value: Mapping[str, Any]) -> None:
    """Replace a small JSON file in one step."""
    write_durably(path, json.dumps(value).encode())


def identity(pid: int) -> dict[str, Any]:
    """Return what distinguishes a process from a later one with its id, or raise psutil.Error if it has ended."""
    started = psutil.Process(pid).create_time()
    return this_process("pod") | {"pid": pid, "started": started, "ticks": started_ticks(pid)}


def orchestrator(layout: Layout) -> dict[str, Any]:
    """Return state, pid and exit code of the newest orchestrator."""
    record = read_record(layout.own / ORCHESTRATOR)
    if record is None:
        return {"orchestrator": "never"}
    pid = record.get("pid") if isinstance(record.get("pid"), int) else None
    if lives(layout.own / ORCHESTRATOR):
        return {"orchestrator": "running", "pid": pid}
    ended = read_record(layout.own / EXIT)
    if ended is None or ended.get("number") != record.get("number"):
        # A living keeper has not looked yet; without a keeper the code stays unknown.
        return {"orchestrator": "running" if lives(layout.own / KEEPER) else "gone", "pid": pid}
    if isinstance(ended.get("code"), int):
        return {"orchestrator": "ended", "pid": pid, "code": ended["code"]}
    return {"orchestrator": "gone", "pid": pid}


class Clock:
    """Hours since the first `pod up`: by the clock, or as counted if the clock was set back."""

    def __init__(self, layout: Layout) -> None:
        self._path = layout.own / SINCE
        record = read_record(self._path)
        if record is None:
            record = {"first": time.time(), "counted": 0.0}
            write(self._path, record)
        self._first, self._before = float(record["first"]), float(record["counted"])
        self._start = time.monotonic()

    def _count_seconds(self) -> float:
        return self._before + time.monotonic() - self._start

    def hours(self) -> float:
        """Return the hours so far."""
        return max(time.time() - self._first, self._count_seconds()) / 3600

    def save(self) -> None:
        """Keep the counted time."""
        write(self._path, {"first": self._first, "counted": self._count_seconds()})


class TrailProgress:
    """How many entries and gates the trail has; reread only after its files changed."""

    def __init__(self, layout: Layout) -> None:
        self._path = layout.run / TRAIL
        self._last_marks: Any = None
        self._facts: dict[str, Any] = {"entries": 0, "gates": 0, "closed": False}

    def read_progress(self) -> dict[str, Any]:
        """Return entries, gates and whether the session is closed."""
        marks = [mark_of(self._path), mark_of(self._path.with_name(f"{TRAIL}-wal"))]
        if marks != self._last_marks and marks[0] is not None:
            with suppress(PeergateError, sqlite3.Error):
                kinds = [entry.kind for entry in read_entries(self._path)]
                self._facts = {"entries": len(kinds), "gates": kinds.count("decision"), "closed": "close" in kinds}
            self._last_marks = marks
        return self._facts


def snapshot(layout: Layout) -> tuple[bytes, bytes | None]:
    """Return the trail at one moment, and its seal if the file is at rest; raise OSError or sqlite3.Error."""
    path = layout.run / TRAIL
    wal, seal = path.with_name(f"{TRAIL}-wal"), path.with_suffix(".seal")
    if wal.exists() and not lives(layout.own / ORCHESTRATOR):
        # A killed process left its log behind; the last connection to close takes it in.
        with closing(sqlite3.connect(path, timeout=30)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    if not wal.exists() or wal.stat().st_size == 0:
        before = mark_of(path)
        data, sealed = path.read_bytes(), seal.read_bytes() if seal.exists() else None
        if before == mark_of(path) and (not wal.exists() or wal.stat().st_size == 0):
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
