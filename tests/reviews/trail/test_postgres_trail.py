"""The trail in Postgres does what it does in a file: a real server, real processes."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from reviews.trail.file_seal import seal_path
from reviews.trail.integrity import walk_trail
from reviews.trail.tables import postgres_connection, postgres_table
from reviews.trail.tables.open_table import read_trail
from reviews.trail.tables.pointer import (
    check_address,
    database_file,
    database_of,
    keep_database,
    pointer_path,
    redact_address,
)
from reviews.trail.tables.postgres_table import PostgresTable, begin_log
from reviews.trail.tables.query import TrailQuery, select
from reviews.trail.trail import Trail
from specs.system.errors import AuditDamage, DatabaseUnreachable, LeaseLost, PeergateError, UserError
from testing.factories.bodies import append_json, body_of
from testing.fixtures.postgres_server import CANARY, Server

pytestmark = pytest.mark.integration

HOME = Path(__file__).parents[3]
ADA = {"by": "ada"}
APPENDER = """
import sys
from pathlib import Path
from reviews.trail.trail import Trail
from specs.trail.session_bodies import PauseEntry

trail = Trail(Path(sys.argv[1]), "small")
for n in range(int(sys.argv[3])):
    key = f"{sys.argv[2]}/{n}"
    trail.append(PauseEntry(by="ada"), key)
    print(key, flush=True)
trail.close()
"""


def begun(folder: Path, address: str, name: str = "small") -> Trail:
    path = folder / "runs" / name / "trail.sqlite"
    path.parent.mkdir(parents=True)
    begin_log(path, name, address)
    trail = Trail(path, name)
    append_json(trail, "workspace", "workspace", {})
    return trail


def sql(postgres: Server, address: str, statement: str) -> str:
    return postgres.sql(urlsplit(address).path.strip("/"), statement)


def test_a_trail_in_postgres_is_read_searched_and_verified_like_a_file(tmp_path: Path, database: str) -> None:
    trail = begun(tmp_path, database)
    for number in range(5):
        append_json(trail, "pause", f"pause/{number}", ADA)
    assert append_json(trail, "pause", "pause/3", {"by": "eve"}).raw == ADA
    with pytest.raises(PeergateError, match="is already a 'pause' entry"):
        append_json(trail, "resume", "pause/3", body_of("resume"))
    assert [recorded_entry.key for recorded_entry in trail.iterate("pause")] == [
        f"pause/{number}" for number in range(5)
    ]
    entry = trail.find("pause/2")
    assert entry is not None and entry.seq == 3 and trail.find("nothing") is None
    trail.verify_chain()
    head = trail.head()
    trail.close()
    walk = walk_trail(read_trail(trail.path))
    assert not walk.damage and walk.tree.size == head.size == 6 and walk.root == head.root
    assert [recorded_entry.key for recorded_entry in select(trail.path, TrailQuery(text="PAUSE/4")).entries] == [
        "pause/4"
    ]
    assert not trail.path.exists() and pointer_path(trail.path).exists() and seal_path(trail.path).exists()
    with pytest.raises(DatabaseUnreachable, match="was closed"):
        append_json(trail, "pause", "pause/9", ADA)
    # As with a file: closing twice is harmless.
    trail.close()


def test_two_trails_of_one_name_in_one_database_do_not_meet(tmp_path: Path, database: str) -> None:
    trail, two = begun(tmp_path / "a", database), begun(tmp_path / "b", database)
    append_json(trail, "pause", "pause/1", ADA)
    assert two.find("pause/1") is None and two.head().size == 1 and trail.head().size == 2
    trail.close()
    two.close()


def test_what_several_processes_append_at_once_is_one_history(tmp_path: Path, database: str) -> None:
    trail = begun(tmp_path, database)
    command = [sys.executable, "-c", APPENDER, str(trail.path)]
    writers = [subprocess.Popen([*command, name, "20"], cwd=HOME, stdout=subprocess.DEVNULL) for name in "ab"]
    for number in range(20):
        append_json(trail, "pause", f"own/{number}", ADA)
    assert [writer.wait() for writer in writers] == [0, 0]
    trail.close()
    walk = walk_trail(read_trail(trail.path))
    assert not walk.damage and len({entry.key for entry in walk.entries}) == 61


@pytest.mark.slow
def test_no_acknowledged_entry_is_lost_when_writer_and_server_are_killed(
    tmp_path: Path, database: str, postgres: Server
) -> None:
    trail = begun(tmp_path, database)
    trail.close()
    acknowledged: set[str] = set()
    for number in range(2):
        with subprocess.Popen(
            [sys.executable, "-c", APPENDER, str(trail.path), f"p{number}", "100000"],
            stdout=subprocess.PIPE, text=True, cwd=HOME,
        ) as child:  # fmt: skip
            assert child.stdout is not None
            lines = [child.stdout.readline() for _ in range(15)]
            postgres.stop()
            child.kill()
            lines += list(child.stdout)
        acknowledged |= {line.strip() for line in lines if line.endswith("\n")}
        postgres.start()
        walk = walk_trail(read_trail(trail.path))
        assert not walk.damage
        assert acknowledged <= {entry.key for entry in walk.entries}
    assert len(acknowledged) >= 30


def test_a_commit_waits_for_the_disk_whatever_the_server_is_set_to(
    tmp_path: Path, database: str, postgres: Server
) -> None:
    assert sql(postgres, database, "SHOW synchronous_commit") == "off"
    trail = begun(tmp_path, database)
    with trail.alone():
        table = trail._table  # pyright: ignore[reportPrivateUsage]
        assert isinstance(table, PostgresTable) and table._held  # pyright: ignore[reportPrivateUsage]
        connection = table._held  # pyright: ignore[reportPrivateUsage]
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
    trail.close()


@pytest.mark.slow
def test_a_server_that_restarts_is_waited_for_and_nothing_is_lost(
    tmp_path: Path, database: str, postgres: Server
) -> None:
    trail = begun(tmp_path, database)
    append_json(trail, "pause", "pause/1", ADA)
    postgres.stop()
    back = threading.Timer(0.7, postgres.start)
    back.start()
    # The connection is lost; so is the first try to make another one.
    assert append_json(trail, "pause", "pause/2", ADA).seq == 2
    back.join()
    postgres.stop("fast")
    postgres.start()
    assert trail.find("pause/2") is not None
    trail.close()
    assert not walk_trail(read_trail(trail.path)).damage


def test_a_server_that_stays_away_is_reported_without_the_password(
    tmp_path: Path, database: str, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_connection, "PATIENCE_S", 0.3)
    monkeypatch.setattr(postgres_connection, "CONNECT_S", 1)
    trail = begun(tmp_path, database)
    postgres.stop()
    try:
        with pytest.raises(DatabaseUnreachable, match="nothing is half-written or lost") as caught:
            append_json(trail, "pause", "pause/1", ADA)
        assert "`peergate resume` continues" in str(caught.value) and CANARY not in str(caught.value)
        with pytest.raises(DatabaseUnreachable), trail.alone():
            pass
        begin = time.monotonic()
        trail.close()
        assert time.monotonic() - begin < 10, "waited again although it was known to be gone"
        with pytest.raises(DatabaseUnreachable):
            read_trail(trail.path)
    finally:
        postgres.start()
    assert walk_trail(read_trail(trail.path)).tree.size == 1


def test_what_was_rolled_back_is_not_there(tmp_path: Path, database: str) -> None:
    trail = begun(tmp_path, database)
    with pytest.raises(KeyError), trail.alone():
        append_json(trail, "pause", "pause/1", ADA)
        raise KeyError
    append_json(trail, "pause", "pause/2", ADA)
    trail.close()
    walk = walk_trail(read_trail(trail.path))
    assert not walk.damage and [entry.key for entry in walk.entries] == ["workspace", "pause/2"]


def test_a_connection_that_is_lost_in_a_transaction_is_not_another_threads_loss(
    tmp_path: Path, database: str, postgres: Server
) -> None:
    trail = begun(tmp_path, database)
    trail.fence = 0
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'"
    with ThreadPoolExecutor(1) as pool:
        lost = False

        def step() -> bool:
            nonlocal lost
            if not lost:
                lost = True
                sql(postgres, database, cut)
                futures.append(pool.submit(trail.guard))
                assert not wait(futures, 0.2).done
            append_json(trail, "pause", "pause/1", ADA)
            return lost

        futures: list[Future[None]] = []
        assert trail.together(step)
        futures[0].result(10)
    assert trail.find("pause/1") is not None
    trail.close()


@pytest.mark.parametrize("statement", ["UPDATE peergate.entry SET key = 'x'", "DELETE FROM peergate.entry",
                                       "TRUNCATE peergate.entry"])  # fmt: skip
def test_postgres_refuses_to_change_an_entry(tmp_path: Path, database: str, postgres: Server, statement: str) -> None:
    begun(tmp_path, database).close()
    with pytest.raises(RuntimeError, match="entries are final and stay"):
        sql(postgres, database, statement)


def edit(column: str, value: str) -> str:
    off = "ALTER TABLE peergate.entry DISABLE TRIGGER ALL"
    return f"{off}; UPDATE peergate.entry SET {column} = {value} WHERE seq = 2"


TAMPERED = {
    "payload": (edit("payload", "replace(payload, 'ada', 'eve')"), "another tree|does not hold"),
    "key": (edit("key", "'pause/9'"), "is found as 'pause' 'pause/9' and says it is 'pause' 'pause/2'"),
    "kind": (edit("kind", "'resume'"), "is found as 'resume'"),
    "cut": ("ALTER TABLE peergate.entry DISABLE TRIGGER ALL; DELETE FROM peergate.entry WHERE seq = 3", "of 4 entries"),
    "head": ("UPDATE peergate.log SET note = replace(note, '4', '5')", "head"),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_what_was_changed_in_the_database_is_found(tmp_path: Path, database: str, postgres: Server, how: str) -> None:
    trail = begun(tmp_path, database)
    for number in range(1, 4):
        append_json(trail, "pause", f"pause/{number}", ADA)
    trail.close()
    statement, output = TAMPERED[how]
    sql(postgres, database, statement)
    with pytest.raises(AssertionError) as caught:
        try:
            damage = "; ".join(walk_trail(read_trail(trail.path)).damage)
        except AuditDamage as error:
            damage = str(error)
        assert not damage, damage
    assert caught.match(output)


def test_who_was_taken_over_appends_nothing_more(tmp_path: Path, database: str) -> None:
    fenced(begun(tmp_path, database))


def test_who_was_taken_over_appends_nothing_more_to_a_file_either(tmp_path: Path) -> None:
    trail = Trail(tmp_path / "runs" / "small" / "trail.sqlite", "small")
    append_json(trail, "workspace", "workspace", {})
    fenced(trail)


def fenced(trail: Trail) -> None:
    lease = {"epoch": 2, "host": "elsewhere", "pid": 7, "over": None}
    trail.fence = 0
    append_json(trail, "pause", "pause/1", ADA)
    two = Trail(trail.path, "small")
    append_json(two, "resume", "resume/1", body_of("resume", lease=lease))
    two.fence = 2
    for attempt in ("pause/2", "pause/1"):
        with pytest.raises(LeaseLost, match=r"taken over by ada \(process 7 on elsewhere, epoch 2; this is epoch 0\)"):
            append_json(trail, "pause", attempt, ADA)
    with pytest.raises(LeaseLost), trail.alone():
        append_json(trail, "pause", "pause/2", ADA)
    with pytest.raises(LeaseLost):
        trail.guard()
    # People append next to anyone who runs the session.
    beside = Trail(trail.path, "small")
    append_json(beside, "pause", "pause/3", ADA)
    append_json(two, "pause", "pause/4", ADA)
    two.close()
    seal_path(trail.path).unlink()
    trail.close()
    assert not seal_path(trail.path).exists(), "who was taken over wrote the seal"
    beside.close()
    walk = walk_trail(read_trail(trail.path))
    assert not walk.damage
    assert [entry.key for entry in walk.entries] == ["workspace", "pause/1", "resume/1", "pause/3", "pause/4"]


def test_which_database_is_used_is_said_by_a_variable_or_a_file_only_its_owner_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trail = tmp_path / "small" / "trail.sqlite"
    monkeypatch.delenv("PEERGATE_DATABASE", raising=False)
    assert database_of(trail) is None
    keep_database(tmp_path, "postgresql://me:secret@db.example:5433/peergate?sslmode=require")
    path = database_file(tmp_path)
    assert path.stat().st_mode & 0o077 == 0 and path.parent.stat().st_mode & 0o077 == 0
    result = database_of(trail)
    assert result is not None and result.endswith("sslmode=require")
    assert redact_address(result) == "postgresql://db.example:5433/peergate"
    path.chmod(0o640)
    with pytest.raises(UserError, match="others can read it"):
        database_of(trail)
    monkeypatch.setenv("PEERGATE_DATABASE", "postgresql:///other")
    assert database_of(trail) == "postgresql:///other"


@pytest.mark.parametrize("address", ["", "db", "mysql://u:hunter2@h/d", "postgresql://u:hunter2@h", "postgresql://h:0/d",
                                     "postgresql://u:hunter2@h:x/d", "postgresql://[hunter2/d"])  # fmt: skip
def test_what_is_no_address_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(UserError, match="invalid address of a Postgres database") as caught:
        check_address(address, "here")
    assert "hunter2" not in str(caught.value)


def test_a_password_is_taken_out_of_what_a_library_says() -> None:
    address = "postgresql://me:se%2Fcret@h/d"
    output = postgres_connection.without_password("cannot use 'se/cret' of me:se%2Fcret@h", address)
    assert output == "cannot use '***' of me:***@h"


def test_a_trail_that_is_elsewhere_is_reported(
    tmp_path: Path, database: str, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    trail = begun(tmp_path, database)
    trail.close()
    monkeypatch.setenv("PEERGATE_DATABASE", other := postgres.new_database())
    begin_log(tmp_path / "other.sqlite", "other", other)
    with pytest.raises(UserError, match="it was begun in postgresql://"):
        Trail(trail.path, "small")
    with pytest.raises(UserError, match="this trail is not in"):
        read_trail(trail.path)
    monkeypatch.delenv("PEERGATE_DATABASE")
    with pytest.raises(UserError, match="no address says how to connect"):
        Trail(trail.path, "small")
    trail.path.touch()
    with pytest.raises(AuditDamage, match="there are two trails"):
        read_trail(trail.path)


def test_a_lock_that_someone_holds_is_reported(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = postgres_table.BEGIN.replace("'30s'", "'100ms'")
    monkeypatch.setattr(postgres_table, "BEGIN", quick)
    trail = begun(tmp_path, database)
    two = Trail(trail.path, "small")

    def waits(action: Callable[[], object]) -> None:
        with pytest.raises(PeergateError, match="the trail is locked"):
            action()

    with trail.alone():
        waits(lambda: append_json(two, "pause", "pause/1", ADA))
    append_json(two, "pause", "pause/1", ADA)
    trail.close()
    two.close()
