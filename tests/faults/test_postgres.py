"""Faults of the database around a session: connections that are cut, a disk that is full, read-only, damaged pages.

A real server refuses or breaks each time. The session pauses or tells what is wrong, loses nothing, and goes on when
the fault is gone. A server that goes away is in ``test_postgres_session.py``; faults of the run folder next to a
database in ``test_disk_full.py`` and ``test_session.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from reviews.audit.verify import verify_run
from reviews.trail.tables import postgres_connection
from reviews.trail.tables.open_table import read_entries
from reviews.trail.tables.postgres_table import PostgresTable
from specs.system.errors import AuditDamage, DatabaseUnreachable, ExitCode
from testing.fixtures.fault_houses import POSTGRES, FaultHouse, Through, in_houses
from testing.fixtures.postgres_server import Server
from tests.faults.test_disk_full import check_finished, disk, go_on, keys, used
from tests.faults.test_session import LosingLauncher, stopped

pytestmark = pytest.mark.integration

RETRY: dict[str, Any] = {"answer": "retry", "reason": "it was lost", "by": "ada", "expires": None}
PAGE = 8192
CUTS = """
CREATE SEQUENCE public.cuts;
CREATE FUNCTION public.cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF nextval('public.cuts') % TG_ARGV[0]::int = 0 THEN
    PERFORM pg_terminate_backend(pg_backend_pid());
    PERFORM pg_sleep(10);
  END IF;
  RETURN NEW; END $$;
"""
EVERY = 4
"""Of so many rows one ends the connection."""
_CUT = "FOR EACH ROW EXECUTE FUNCTION public.cut"
WHERE = {
    "entry": f"CREATE TRIGGER cut BEFORE INSERT ON peergate.entry {_CUT}",
    "head": f"CREATE TRIGGER cut BEFORE UPDATE ON peergate.log {_CUT}",
    "commit": f"CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON peergate.entry DEFERRABLE INITIALLY DEFERRED {_CUT}",
}
"""Where the server ends the connection."""


def fault_params(every: Iterable[str], *always: str) -> list[Any]:
    """Return all names of a fault; those that are not made always are nightly."""
    return [pytest.param(name, marks=[] if name in always else [pytest.mark.nightly]) for name in every]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_connection, "PATIENCE_S", 0.3)
    monkeypatch.setattr(postgres_connection, "CONNECT_S", 2)


in_postgres = in_houses(POSTGRES)


def name_of(address: str) -> str:
    return urlsplit(address).path.strip("/")


def effects_once(run: Path) -> None:
    """Every job was launched, ended and paid once."""
    selected = keys(run)
    assert len(selected) == len(set(selected))
    for kind in ("launch", "exit", "metrics", "verdict"):
        assert len([key for key in selected if key.startswith(f"{kind}/")]) >= 5
    reserved = {key.removeprefix("reserve/") for key in selected if key.startswith("reserve/")}
    assert reserved == {key.removeprefix("settle/") for key in selected if key.startswith("settle/")}


class Once(Through):
    """Does something when a job is looked at for the first time."""

    def __init__(self, house: FaultHouse, what: Callable[[], None], at: str = "small.sample.1") -> None:
        super().__init__(house.launcher())
        self.what: Callable[[], None] | None = what
        self.at = at

    def poll(self, folder: Path) -> Any:
        if folder.name == self.at and self.what is not None:
            what, self.what = self.what, None
            what()
        return super().poll(folder)


# ---- connections --------------------------------------------------------------------------------------------


@in_postgres
@pytest.mark.parametrize("where", fault_params(WHERE, "entry", "commit"))
def test_a_connection_that_is_cut_again_and_again_stops_loses_and_repeats_nothing(
    tmp_path: Path, house: FaultHouse, postgres: Server, database: str, where: str
) -> None:
    run = stopped(house, tmp_path, "base")
    before = keys(run)
    postgres.sql(name_of(database), f"{CUTS} {WHERE[where]}({EVERY})")
    house.go_on(run)
    cut = int(postgres.sql(name_of(database), "SELECT last_value FROM public.cuts")) // EVERY
    assert cut >= 5, "nothing was cut"
    check_finished(run, before)
    effects_once(run)
    print(f"{where}: cut {cut} times")


@in_postgres
def test_an_answer_to_a_commit_that_is_lost_repeats_nothing(
    tmp_path: Path, house: FaultHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first step was recorded, and is done again: it finds what it did."""
    from psycopg import OperationalError

    run = house.open(tmp_path)
    commit, count, lost = PostgresTable.commit, 0, 0

    def unanswered(table: PostgresTable) -> None:
        nonlocal count, lost
        count += 1
        if count % 3:
            return commit(table)
        connection = table._held  # pyright: ignore[reportPrivateUsage]
        assert connection is not None
        connection.execute("COMMIT")
        connection.close()
        lost += 1
        raise OperationalError("server closed the connection unexpectedly")

    with monkeypatch.context() as patched:
        patched.setattr(PostgresTable, "commit", unanswered)
        house.go_on(run)
    assert lost >= 10
    check_finished(run, [])
    effects_once(run)
    print(f"{lost} answers lost")


# ---- a database that cannot be written ----------------------------------------------------------------------


def read_only(postgres: Server, database: str, on: bool) -> None:
    """What a server that follows another one answers; connections that are there are ended, as in a change-over."""
    name = name_of(database)
    message = f"SET default_transaction_read_only = {'on' if on else 'off'}"
    ends = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    postgres.sql("postgres", f"ALTER DATABASE {name} {message}; {ends}")


@in_postgres
def test_a_database_that_became_read_only_pauses_the_session_and_it_goes_on(
    tmp_path: Path, house: FaultHouse, postgres: Server, database: str, impatient: None
) -> None:
    run = stopped(house, tmp_path, "base")
    before = keys(run)
    read_only(postgres, database, True)
    done = go_on(run, house)
    assert done.returncode == ExitCode.BLOCKED and "Traceback" not in done.stderr, done.stderr
    assert "the database cannot be written" in done.stderr and "`peergate resume` continues" in done.stderr
    assert keys(run) == before
    read_only(postgres, database, False)
    # And in the middle of it.
    with pytest.raises(DatabaseUnreachable, match=r"cannot be written: cannot execute .* in a read-only transaction"):
        house.go_on(run, Once(house, lambda: read_only(postgres, database, True)))
    before = keys(run)
    read_only(postgres, database, False)
    house.go_on(run)
    check_finished(run, before)


@in_postgres
def test_a_database_that_is_read_only_for_a_moment_does_not_stop_the_session(
    tmp_path: Path, house: FaultHouse, postgres: Server, database: str
) -> None:
    run = house.open(tmp_path)
    back = threading.Timer(1.0, read_only, (postgres, database, False))

    def change_over() -> None:
        read_only(postgres, database, True)
        back.start()

    house.go_on(run, Once(house, change_over))
    back.join()
    check_finished(run, [])


# ---- a database whose disk is full --------------------------------------------------------------------------


@in_postgres
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rooms", [[16], pytest.param(list(range(0, 640, 40)), marks=pytest.mark.nightly)])
def test_a_session_whose_databases_disk_is_full_pauses_and_goes_on(
    tmp_path: Path, house: FaultHouse, postgres: Server, monkeypatch: pytest.MonkeyPatch, rooms: list[int]
) -> None:
    """The tables are on a disk of their own; the server says that it is full, at another place each time."""
    name = f"small{len(rooms)}"
    small = postgres.folder / name
    with disk(small) as resize:
        postgres.own(small)
        postgres.sql("postgres", f"CREATE TABLESPACE {name} LOCATION '{small}'")
        address = postgres.new_database(tablespace=name)
        try:
            monkeypatch.setenv("PEERGATE_DATABASE", address)
            run = stopped(house, tmp_path, "base")
            begun, paused = used(small), 0
            for room in rooms:
                if not resize(begun + room):
                    continue
                before = keys(run)
                done = go_on(run, house)
                assert resize(64 * 1024)
                if done.returncode == 0:
                    break
                assert done.returncode == ExitCode.BLOCKED and "Traceback" not in done.stderr, done.stderr
                assert "the database has no room: could not extend file" in done.stderr, done.stderr
                assert keys(run)[: len(before)] == before
                paused += 1
            assert paused
            before = keys(run)
            house.go_on(run)
            check_finished(run, before)
            effects_once(run)
            print(f"paused {paused} times")
        finally:
            postgres.sql("postgres", f"DROP DATABASE {name_of(address)} WITH (FORCE)")
            postgres.sql("postgres", f"DROP TABLESPACE {name}")


# ---- damage -------------------------------------------------------------------------------------------------


def spoiled(postgres: Server, database: str, table: str) -> Callable[[], None]:
    """Overwrite the pages of a table with what is none; return what puts them back."""
    path = postgres.folder / "data" / postgres.sql(name_of(database), f"SELECT pg_relation_filepath('{table}')")
    postgres.stop("fast")
    try:
        whole = path.read_bytes()
        assert whole and len(whole) % PAGE == 0
        path.write_bytes(b"\xff" * len(whole))
    finally:
        postgres.start()

    def put_back() -> None:
        postgres.stop("fast")
        path.write_bytes(whole)
        postgres.start()

    return put_back


@in_postgres
@pytest.mark.parametrize("table", fault_params(["peergate.entry", "peergate.log"], "peergate.entry"))
def test_a_damaged_page_of_the_database_is_reported_as_damage_and_nothing_is_added(
    tmp_path: Path, house: FaultHouse, postgres: Server, database: str, table: str
) -> None:
    run = stopped(house, tmp_path, "train")
    before = keys(run)
    put_back = spoiled(postgres, database, table)
    done = go_on(run, house)
    assert done.returncode == ExitCode.DAMAGED and "Traceback" not in done.stderr, done.stderr
    assert "the database is damaged: invalid page in block " in done.stderr, done.stderr
    with pytest.raises(AuditDamage, match="invalid page"):
        read_entries(run / "trail.sqlite")
    assert verify_run(run, "trail.sqlite", "store").damage
    put_back()
    assert keys(run) == before
    house.go_on(run)
    check_finished(run, before)


@in_postgres
def test_a_session_in_the_database_that_asks_a_person_asks_again_in_every_process(
    tmp_path: Path, house: FaultHouse
) -> None:
    run = house.open(tmp_path)
    house.go_on(run, LosingLauncher(house.launcher(), house))
    before = keys(run)
    house.go_on(run)
    assert keys(run) == before, "asking has an effect"
    house.go_on(run, answer=RETRY)
    check_finished(run, before)
