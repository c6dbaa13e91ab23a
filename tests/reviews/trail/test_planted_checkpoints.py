"""Checkpoints of a graph that someone planted: in a run folder, or in the tables of a shared database.

LangGraph's own savers keep checkpoints as msgpack that names what to call when it is read. Anyone who can write one row
would have code run by the next ``resume``. Sessions keep no checkpoints and read none: what is planted is left alone.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import ormsgpack
import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from reviews.audit.verify import verify_run
from reviews.trail.tables.open_table import read_entries
from reviews.trail.tables.pointer import pointer_of
from testing.fixtures.postgres_server import Server
from testing.fixtures.quick_session import QuickLauncher, drive, open_quick, quick_session
from testing.fixtures.simulated_kill import SimulatedKill
from tests.faults.test_graph import RETRY, LosingLauncher

pytestmark = pytest.mark.integration

CONSTRUCTOR = 1
"""LangGraph's number for "call this with these"."""
NEWEST = "ffffffff-ffff-6fff-bfff-ffffffffffff"
TABLES = """
CREATE TABLE IF NOT EXISTS checkpoints (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '',
  checkpoint_id TEXT NOT NULL, parent_checkpoint_id TEXT, type TEXT, checkpoint {json}, metadata {json},
  PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id));
CREATE TABLE IF NOT EXISTS {writes} (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '',
  checkpoint_id TEXT NOT NULL, task_id TEXT NOT NULL, idx INTEGER NOT NULL, channel TEXT NOT NULL, type TEXT,
  {value} {bytes}{path}, PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx));
"""


class Killing(QuickLauncher):
    """The session is killed when its second job is started."""

    def start(self, folder: Path) -> None:
        super().start(folder)
        if folder.name == "small.sample.1":
            raise SimulatedKill


def payload(marker: Path) -> bytes:
    """Return a value that touches a file when it is read as LangGraph reads its checkpoints."""
    call = ormsgpack.packb(("os", "system", (f"touch {marker}",)))
    return ormsgpack.packb(ormsgpack.Ext(CONSTRUCTOR, call))


def stopped(folder: Path, how: str) -> Path:
    """Return a session that waits for a person, or was killed under a job."""
    run = open_quick(folder)
    if how == "waits":
        drive(quick_session(run, launcher=LosingLauncher()))
    else:
        with pytest.raises(SimulatedKill):
            drive(quick_session(run, launcher=Killing()))
    return run


def plant_file(run: Path, marker: Path) -> None:
    """Leave what LangGraph's saver for SQLite would go on from."""
    with sqlite3.connect(run / "state.sqlite") as connection:
        connection.executescript(TABLES.format(json="BLOB", bytes="BLOB", writes="writes", value="value", path=""))
        row = (run.name, "", NEWEST, "msgpack", payload(marker), b"{}")
        columns = "thread_id, checkpoint_ns, checkpoint_id, type, checkpoint, metadata"
        connection.execute(f"INSERT INTO checkpoints ({columns}) VALUES (?, ?, ?, ?, ?, ?)", row)
        write = (run.name, "", NEWEST, "task", 0, "stage", "msgpack", payload(marker))
        columns = "thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value"
        connection.execute(f"INSERT INTO writes ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", write)
    connection.close()


def goes_on(run: Path, how: str) -> None:
    """Resume as a person would, and see the session end as any other."""
    drive(quick_session(run))
    if how == "waits":
        assert read_entries(run / "trail.sqlite")[-1].raw.get("outcome") == "escalate"
        drive(quick_session(run), RETRY)
    entries = read_entries(run / "trail.sqlite")
    assert entries[-1].raw["decision"] == "approve"
    launched = [entry.raw["key"] for entry in entries if entry.kind == "launch"]
    assert len(launched) == len(set(launched))
    assert verify_run(run, "trail.sqlite", "store").exit_code == 0


_watching: list[str] | None = None


def _see(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching is not None and event in ("open", "sqlite3.connect"):
        _watching.append(str(arguments[0]))


def opened_while(step: Callable[[], None]) -> list[str]:
    """Return the names of the files that this process opens meanwhile, databases included."""
    global _watching
    if not getattr(sys, "_sees_opens", False):
        sys.addaudithook(_see)
        sys._sees_opens = True  # type: ignore[attr-defined]
    _watching = seen = []
    try:
        step()
    finally:
        _watching = None
    return seen


def test_what_is_planted_would_run_when_it_is_read(tmp_path: Path) -> None:
    """The control: without it the other tests would show nothing."""
    assert JsonPlusSerializer().loads_typed(("msgpack", payload(tmp_path / "ran"))) == 0
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("how", [pytest.param("waits", marks=pytest.mark.slow), "killed"])
def test_a_planted_file_of_checkpoints_is_not_read(tmp_path: Path, how: str) -> None:
    run, marker = stopped(tmp_path, how), tmp_path / "ran"
    plant_file(run, marker)
    before = (run / "state.sqlite").read_bytes()
    seen = opened_while(lambda: goes_on(run, how))
    assert not marker.exists(), "resume ran what was planted"
    assert any("trail.sqlite" in name for name in seen), "nothing was watched"
    assert not [name for name in seen if "state.sqlite" in name]
    assert (run / "state.sqlite").read_bytes() == before


@pytest.mark.parametrize("how", ["waits", pytest.param("killed", marks=pytest.mark.slow)])
def test_planted_tables_of_checkpoints_are_not_read(tmp_path: Path, postgres: Server, database: str, how: str) -> None:
    run, marker = stopped(tmp_path, how), tmp_path / "ran"
    name, pointer = urlsplit(database).path.strip("/"), pointer_of(run / "trail.sqlite")
    assert pointer is not None
    blob = payload(marker).hex()
    shape = TABLES.format(
        json="JSONB",
        bytes="BYTEA",
        writes="checkpoint_writes",
        value="blob",
        path=", task_path TEXT NOT NULL DEFAULT ''",
    )
    checkpoint = f'{{"v": 4, "id": "{NEWEST}", "ts": "2030-01-01T00:00:00+00:00", "channel_values": {{}}, '
    checkpoint += '"channel_versions": {"stage": "1"}, "versions_seen": {}, "updated_channels": []}'
    thread = str(pointer.log)
    postgres.sql(
        name,
        f"{shape} CREATE TABLE IF NOT EXISTS checkpoint_blobs (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL, "
        "channel TEXT NOT NULL, version TEXT NOT NULL, type TEXT NOT NULL, blob BYTEA, "
        "PRIMARY KEY (thread_id, checkpoint_ns, channel, version));"
        "INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, type, checkpoint, metadata) "
        f"VALUES ('{thread}', '', '{NEWEST}', NULL, '{checkpoint}', '{{}}');"
        f"INSERT INTO checkpoint_blobs VALUES ('{thread}', '', 'stage', '1', 'msgpack', '\\x{blob}');"
        "INSERT INTO checkpoint_writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, blob) "
        f"VALUES ('{thread}', '', '{NEWEST}', 'task', 0, 'stage', 'msgpack', '\\x{blob}');",
    )
    scans = "SELECT sum(seq_scan + coalesce(idx_scan, 0)) FROM pg_stat_user_tables WHERE relname LIKE 'checkpoint%'"
    before = postgres.sql(name, scans)
    goes_on(run, how)
    assert not marker.exists(), "resume ran what was planted"
    assert postgres.sql(name, scans) == before, "the tables were read"
    assert postgres.sql(name, "SELECT count(*) FROM checkpoint_writes") == "1"
    # The control: who reads is counted.
    assert postgres.sql(name, scans) != before


def test_sessions_make_no_tables_of_checkpoints(tmp_path: Path, postgres: Server, database: str) -> None:
    run = stopped(tmp_path, "waits")
    drive(quick_session(run), RETRY)
    result = postgres.sql(
        urlsplit(database).path.strip("/"), "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'check%'"
    )
    assert result == "0"
    assert not list(run.glob("state.sqlite*"))
