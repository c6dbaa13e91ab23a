"""Short sessions for hours, in files and in Postgres, paused, killed and resumed: nothing piles up."""

from __future__ import annotations

import gc
import itertools
import shutil
import threading
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import psutil
import pytest

from reviews.audit.verify import verify_run
from sessions.pages.overview import overview
from sessions.run import pause
from sessions.session import PauseSignal
from testing.fixtures.postgres_server import Server
from testing.fixtures.quick_session import QuickLauncher, drive, open_quick, quick_session
from testing.fixtures.simulated_kill import SimulatedKill

pytestmark = pytest.mark.integration

WARM_UP = 4
"""Sessions that fill what is kept for good: imports, keys, pages of SQLite."""


class ResourceCount(NamedTuple):
    """What a process holds of the machine, and what the server keeps for it."""

    handles: int
    threads: int
    children: int
    connections: int
    tables: int


def count_held(postgres: Server, database: str) -> ResourceCount:
    gc.collect()
    name = urlsplit(database).path.strip("/")

    def count(what: str) -> int:
        return int(postgres.sql(name, f"SELECT count(*) FROM {what}"))

    # A connection that was closed ends on the server a moment later; psql's own is one of them.
    deadline = time.monotonic() + 20
    while (connections := count(f"pg_stat_activity WHERE datname = '{name}'")) > 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    process = psutil.Process()
    return ResourceCount(
        handles=process.num_fds(),
        threads=threading.active_count(),
        children=len(process.children(recursive=True)),
        connections=connections,
        tables=count("pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"),
    )


class Interrupting(QuickLauncher):
    """Has the session paused, or ended as by a kill, when its second job is started."""

    def __init__(self, how: str, run: Path) -> None:
        super().__init__()
        self._how, self._run = how, run

    def start(self, folder: Path) -> None:
        super().start(folder)
        how, self._how = self._how, ""
        if how == "pause":
            pause.ask_for(self._run, pause.PAUSE)
        elif how == "kill":
            raise SimulatedKill


def one_session(folder: Path, how: str) -> int:
    """Run a session to its end, interrupted once; return how many entries it has."""
    run = open_quick(folder)
    if how:
        with pytest.raises((PauseSignal, SimulatedKill)):
            drive(quick_session(run, launcher=Interrupting(how, run)))
    drive(quick_session(run))
    audit = verify_run(run, "trail.sqlite", "store")
    assert audit.exit_code == 0, audit.damage
    assert overview(run).decision == "approve"
    return audit.entries


@pytest.mark.nightly
@pytest.mark.timeout(0)
def test_sessions_for_hours_leave_nothing_behind(
    tmp_path: Path, postgres: Server, database: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    def draw(*_: object) -> list[str]:
        return []

    monkeypatch.setattr("sessions.pages.report.plots.draw", draw)
    until = time.monotonic() + 60 * float(str(request.config.getoption("--soak-minutes")))
    base: ResourceCount | None = None
    lengths: dict[str, set[int]] = {}
    ways = itertools.cycle(itertools.product(("file", "postgres"), ("", "pause", "kill")))
    done, in_database, start_kb = 0, 0, 0.0
    least = WARM_UP + 6
    while time.monotonic() < until or done < least:
        where, how = next(ways)
        folder = tmp_path / str(done)
        folder.mkdir()
        with monkeypatch.context() as patched:
            if where == "file":
                patched.delenv("PEERGATE_DATABASE")
            lengths.setdefault(how, set()).add(one_session(folder, how))
        in_database += where == "postgres"
        shutil.rmtree(folder)
        done += 1
        if done == WARM_UP:
            base = count_held(postgres, database)
            start_kb = psutil.Process().memory_info().rss / 1024
    now = count_held(postgres, database)
    grown_kb = psutil.Process().memory_info().rss / 1024 - start_kb
    print(f"{done} sessions; before {base}, after {now}; memory +{grown_kb / 1024:.1f} MB")
    assert base is not None
    assert now.handles <= base.handles and now.threads <= base.threads, (base, now)
    assert (now.children, now.connections, now.tables) == (base.children, 1, base.tables)
    rows = postgres.sql(urlsplit(database).path.strip("/"), "SELECT count(*) FROM peergate.log")
    assert int(rows) == in_database
    # Sessions interrupted in the same way are of the same length: nothing is written twice.
    assert all(len(length) == 1 for length in lengths.values()), lengths
