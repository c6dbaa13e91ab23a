"""Kills, full disks and read-only disks: what was acknowledged stays, nothing is half-written, the error says why."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from reviews.trail.chain.store import Store
from reviews.trail.file_seal import seal_path
from reviews.trail.integrity import walk_trail
from reviews.trail.tables import sqlite_table
from reviews.trail.tables.open_table import read_trail
from reviews.trail.trail import Trail
from specs.system.digests import digest_bytes
from specs.system.errors import AuditDamage, DiskUnwritable, PeergateError
from testing.factories.bodies import append_json, body_of
from testing.factories.forgery import entries_of, rows_of

HOME = Path(__file__).parents[3]

APPENDER = """
import os, sys
from pathlib import Path
from reviews.trail.trail import Trail
from testing.factories.bodies import append_json, body_of

def append(path, name):
    trail = Trail(Path(path), "small")
    for n in range(100_000):
        key = f"{name}/{n}"
        append_json(trail, "spend", key, body_of("spend", job="x" * 300))
        # One write, whole or not at all: `print` writes its line break apart where Python is unbuffered.
        os.write(1, f"{key}\\n".encode())

if sys.argv[1:]:
    append(*sys.argv[1:])
# Imported once, each appender is a fork: it says who it is, and this process when it is gone.
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        print(os.getpid(), flush=True)
        append(*line.split())
    os.waitpid(pid, 0)
    print("gone", flush=True)
"""

pytestmark = pytest.mark.synced


@pytest.mark.parametrize("kills", [pytest.param(10, id="10"), pytest.param(100, id="100", marks=pytest.mark.nightly)])
def test_no_acknowledged_entry_is_lost_by_a_kill_at_any_moment(tmp_path: Path, kills: int) -> None:
    path = tmp_path / "run" / "trail.sqlite"
    chance = random.Random(5)
    acknowledged: set[str] = set()
    unacknowledged = 0
    with subprocess.Popen(
        [sys.executable, "-c", APPENDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HOME
    ) as appenders:
        assert appenders.stdin is not None and appenders.stdout is not None
        for number in range(kills):
            print(path, f"p{number}", file=appenders.stdin, flush=True)
            pid = int(appenders.stdout.readline())
            lines: list[str] = []
            for _ in range(chance.randrange(1, 20)):
                lines.append(appenders.stdout.readline())
                assert lines[-1] not in ("", "gone\n"), "the appender ended before it was killed"
            # Anywhere between two lines: about the time that one append takes.
            time.sleep(chance.random() * 0.01)
            os.kill(pid, signal.SIGKILL)
            while (line := appenders.stdout.readline()) != "gone\n":
                assert line, "the process of the appenders has ended"
                lines.append(line)
            acknowledged |= {line.strip() for line in lines if line.endswith("\n")}
            walk = walk_trail(read_trail(path))
            assert not walk.damage
            selected = {entry.key for entry in walk.entries}
            assert acknowledged <= selected
            unacknowledged = len(selected - acknowledged)
    assert len(acknowledged) > kills
    # Which shows that the kills did land between a commit and its acknowledgement: keys make a repeat harmless.
    print(f"{kills} kills, {len(acknowledged)} acknowledged, {unacknowledged} kept and not acknowledged")
    trail = Trail(path, "small")
    append_json(trail, "close", "close", body_of("close"))
    trail.verify_chain()
    trail.close()


def test_every_commit_waits_for_the_disk(tmp_path: Path) -> None:
    """A kill cannot show this, loss of power would: it is asked of SQLite."""
    trail = Trail(tmp_path / "run" / "trail.sqlite", "small")
    ask = trail._table.connection.execute  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    assert (ask("PRAGMA synchronous").fetchone()[0], ask("PRAGMA journal_mode").fetchone()[0]) == (2, "wal")
    trail.close()


def limited(megabytes: float) -> Callable[[], None]:
    def limit() -> None:
        # Writing beyond the limit then fails like a full disk instead of ending the process.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(megabytes * 2**20), resource.RLIM_INFINITY))

    return limit


@pytest.mark.parametrize("waits_s", [5.0, 0.0])
def test_a_file_that_two_make_at_once_is_opened_by_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits_s: float
) -> None:
    """SQLite asks no one to wait when two turn the log on: the second one is refused at once."""
    path = tmp_path / "trail.sqlite"
    first = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    first.execute("CREATE TABLE first (one)")
    first.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(sqlite_table, "WAIT_S", waits_s)
    ending = threading.Timer(0.3, first.rollback)
    ending.start()
    try:
        if waits_s:
            sqlite_table.SqliteTable(path).close()
        else:
            with pytest.raises(DiskUnwritable, match="database is locked"):
                sqlite_table.SqliteTable(path)
    finally:
        ending.join()
        first.close()


def test_a_trail_file_is_made_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trail.sqlite"
    first, _, rest = sqlite_table.SCHEMA.partition(";")
    with monkeypatch.context() as patched:
        patched.setattr(sqlite_table, "SCHEMA", f"{first}; SELECT the_process_ends_here();")
        with pytest.raises(DiskUnwritable):
            sqlite_table.SqliteTable(path)
    table = sqlite_table.SqliteTable(path)
    assert rest and table.head() is None
    table.close()


def test_a_disk_that_is_full_is_reported_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    path = tmp_path / "run" / "trail.sqlite"
    done = subprocess.run(
        [sys.executable, "-c", APPENDER, str(path), "p"],
        preexec_fn=limited(0.5), capture_output=True, text=True, cwd=HOME, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "the trail cannot be written: " in done.stderr, done.stderr
    assert "nothing was recorded" in done.stderr and "`peergate resume` continues" in done.stderr
    acknowledged = done.stdout.split()
    assert len(acknowledged) > 20
    walk = walk_trail(read_trail(path))
    assert not walk.damage
    assert [entry.key for entry in walk.entries] == acknowledged
    # There is room again: it goes on where it was.
    trail = Trail(path, "small")
    append_json(trail, "spend", f"p/{len(acknowledged)}", body_of("spend"))
    trail.verify_chain()
    trail.close()


def test_a_trail_that_cannot_be_sealed_is_reported_and_sealed_when_it_is_closed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run" / "trail.sqlite"
    trail = Trail(path, "small")
    append_json(trail, "open", "open", body_of("open"))

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("reviews.trail.file_seal.write_durably", full)
        with pytest.raises(DiskUnwritable, match=r"cannot be sealed: .*its entries are all there"):
            trail.close()
    assert not seal_path(path).exists()
    again = Trail(path, "small")
    assert [entry.key for entry in again.iterate()] == ["open"]
    again.close()
    assert seal_path(path).exists()


def test_a_full_small_disk_is_reported_too(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("may not mount a tmpfs here")
    try:
        path = disk / "run" / "trail.sqlite"
        done = subprocess.run(
            [sys.executable, "-c", APPENDER, str(path), "p"], capture_output=True, text=True, cwd=HOME, check=False
        )
        assert done.returncode == 1 and "the trail cannot be written: " in done.stderr, done.stderr
        acknowledged = done.stdout.split()
        store = Store(disk / "run" / "store")
        with pytest.raises(OSError, match="No space left"):
            store.put(b"x" * 2**20)
        assert not [file_path for file_path in store.root.rglob("*") if file_path.is_file()]
        walk = walk_trail(read_trail(path))
        assert not walk.damage
        assert [entry.key for entry in walk.entries] == acknowledged
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_read_only_disk_is_reported(tmp_path: Path) -> None:
    """SQLite's own read-only mode stands for the disk: who runs as root may write everywhere."""
    path = tmp_path / "run" / "trail.sqlite"
    trail = Trail(path, "small")
    append_json(trail, "open", "open", body_of("open"))
    trail._table.connection.execute("PRAGMA query_only=ON")  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    with pytest.raises(PeergateError, match=r"cannot be written: .*readonly.*nothing was recorded"):
        append_json(trail, "spend", "spend/1", body_of("spend"))
    trail._table.connection.execute("PRAGMA query_only=OFF")  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    assert append_json(trail, "spend", "spend/1", body_of("spend")).seq == 1
    trail.close()


def test_a_disk_mounted_read_only_is_reported_and_can_be_read(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("may not mount a tmpfs here")
    try:
        path = disk / "run" / "trail.sqlite"
        trail = Trail(path, "small")
        append_json(trail, "open", "open", body_of("open"))
        trail.close()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert not walk_trail(read_trail(path)).damage
        with pytest.raises(PeergateError, match="the trail cannot be written"):
            append_json(Trail(path, "small"), "spend", "spend/1", body_of("spend"))
        with pytest.raises(OSError, match="Read-only"):
            Store(disk / "run" / "store").put(b"x")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    shutil.rmtree(disk)


def test_the_newest_entry_is_whole_or_not_there_wherever_the_log_is_cut(tmp_path: Path) -> None:
    """Loss of power may cut the write-ahead log anywhere: what is read is then a beginning that verifies."""
    path = tmp_path / "run" / "trail.sqlite"
    trail = Trail(path, "small")
    for n in range(12):
        append_json(trail, "spend", f"spend/{n}", body_of("spend", job="x" * 200))
    log = path.with_name("trail.sqlite-wal").read_bytes()
    base = path.read_bytes()
    chance = random.Random(1)
    seen: set[int] = set()
    for number, cut in enumerate([0, len(log), *(chance.randrange(len(log)) for _ in range(60))]):
        copy = tmp_path / str(number) / "trail.sqlite"
        copy.parent.mkdir()
        copy.write_bytes(base)
        copy.with_name("trail.sqlite-wal").write_bytes(log[:cut])
        try:
            file = read_trail(copy)
        except Exception as error:
            assert "no such table" in str(error), error
            continue
        walk = walk_trail(file)
        assert not walk.damage
        seen.add(walk.tree.size)
    assert len(seen) > 4 and max(seen) == 12
    trail.close()


def test_the_store_returns_no_other_bytes_than_it_was_given(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    digest = store.put(b"rows")
    assert digest == digest_bytes(b"rows")
    store.path(digest).write_bytes(b"r0ws")
    with pytest.raises(AuditDamage, match="stored bytes have the digest"):
        store.get(digest)


def test_the_entries_of_a_killed_process_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "run" / "trail.sqlite"
    trail = Trail(path, "small")
    for n in range(3):
        append_json(trail, "spend", f"spend/{n}", body_of("spend"))
    assert [entry.key for entry in entries_of(rows_of(path))] == ["spend/0", "spend/1", "spend/2"]
    trail.close()
