"""A session whose disk fills: one clear error, nothing half-written, and it goes on when there is room."""

from __future__ import annotations

import errno
import json
import resource
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reviews.audit.verify import verify_run
from reviews.history.history import History
from reviews.trail.chain.store import Store
from reviews.trail.integrity import walk_trail
from reviews.trail.tables.open_table import read_entries, read_trail
from sessions.pages.overview import is_waiting
from sessions.run.disk_errors import no_room, telling_no_room
from specs.system.digests import digest_file
from specs.system.errors import DiskUnwritable, ExitCode
from testing.fixtures.fault_houses import (
    FILES,
    POSTGRES,
    POSTGRES_WRAPPERS,
    RAY,
    WRAPPERS,
    FaultHouse,
    in_all,
    in_houses_with,
)
from testing.fixtures.job_python import REAL

pytestmark = pytest.mark.integration

HOME = Path(__file__).parents[2]
SESSION = """
import json, sys
from pathlib import Path
from reviews.trail.tables import postgres_connection
from sessions.commands import cli
from testing.fixtures.fault_houses import restore_launcher
from testing.fixtures.quick_session import drive, quick_session

postgres_connection.PATIENCE_S, postgres_connection.CONNECT_S = 0.3, 2
run, house, answer = sys.argv[1:]
cli.app = lambda: drive(quick_session(Path(run), launcher=restore_launcher(house)), json.loads(answer))
cli.main()
"""
RETRY: dict[str, Any] = {"answer": "retry", "reason": "the disk was full", "by": "ada", "expires": None}


def command(run: Path, house: FaultHouse, answer: dict[str, Any] | None = None) -> list[str]:
    return [REAL, "-c", SESSION, str(run), house.as_json(), json.dumps(answer)]


def go_on(
    run: Path, house: FaultHouse, limit: Callable[[], None] | None = None, answer: dict[str, Any] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the session as the command line would, with what ends it told as there."""
    words = command(run, house, answer)
    return subprocess.run(words, preexec_fn=limit, capture_output=True, text=True, cwd=HOME, check=False)


def no_file_beyond(size: int) -> Callable[[], None]:
    def limit() -> None:
        # Writing beyond the limit then fails like a full disk instead of ending the process.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    return limit


def check_paused(run: Path, done: subprocess.CompletedProcess[str]) -> None:
    """It says once what is wrong and what helps, and everything that is there is whole."""
    assert done.returncode == ExitCode.BLOCKED, (done.returncode, done.stderr)
    errors = [line for line in done.stderr.splitlines() if line.startswith("peergate: ")]
    assert len(errors) == 1 and "Traceback" not in done.stderr, done.stderr
    assert "cannot be written: " in errors[0] or "cannot be sealed: " in errors[0], errors
    assert "make room" in done.stderr and "`peergate resume`" in done.stderr
    assert not walk_trail(read_trail(run / "trail.sqlite")).damage
    for path in (run / "store").glob("*/*"):
        assert not path.name.startswith("."), f"{path} is half-written"
        assert digest_file(path) == f"sha256:{path.parent.name}{path.name}"


def check_finished(run: Path, before: list[str]) -> None:
    """It ends as if the disk had never been full."""
    audit = verify_run(run, "trail.sqlite", "store")
    assert (audit.exit_code, audit.damage, audit.decision) == (0, [], "approve"), audit.notes
    selected = [entry.key for entry in walk_trail(read_trail(run / "trail.sqlite")).entries]
    assert selected[: len(before)] == before, "an entry that was recorded is gone"
    assert len({key for key in selected if key.startswith("launch/")}) == len(
        [key for key in selected if key.startswith("launch/")]
    )


def keys(run: Path) -> list[str]:
    return [entry.key for entry in walk_trail(read_trail(run / "trail.sqlite")).entries]


# Where the trail is in a database, the largest file is a packet for the reviewer.
SIZES = {FILES: 60_000, POSTGRES: 8_000, POSTGRES_WRAPPERS: 8_000, WRAPPERS: 250_000, RAY: 250_000}


@pytest.mark.slow
@in_all()
def test_a_session_whose_files_cannot_grow_pauses_and_goes_on(tmp_path: Path, house: FaultHouse) -> None:
    run = house.open(tmp_path)
    check_paused(run, go_on(run, house, no_file_beyond(SIZES[house.name])))
    before = keys(run)
    house.go_on(run)
    check_finished(run, before)


@in_houses_with(
    "number", {FILES: (1, 7, 16), POSTGRES: (7,), WRAPPERS: (7,), POSTGRES_WRAPPERS: (7,), RAY: (7,)}, slow=(1, 16)
)
def test_evidence_that_cannot_be_kept_pauses_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, house: FaultHouse, number: int
) -> None:
    run = house.open(tmp_path)
    puts = 0
    put = Store.put

    def full(store: Store, data: bytes) -> str:
        nonlocal puts
        puts += 1
        if puts == number:
            raise OSError(errno.ENOSPC, "No space left on device", str(store.root))
        return put(store, data)

    with monkeypatch.context() as patched:
        patched.setattr(Store, "put", full)
        with pytest.raises(DiskUnwritable, match="cannot be written: No space left on device"):
            house.go_on(run)
    before = keys(run)
    house.go_on(run)
    check_finished(run, before)


def test_only_want_of_room_is_reported_as_such(tmp_path: Path) -> None:
    unwritable = no_room(OSError(errno.EROFS, "Read-only file system", "a/b"))
    assert unwritable is not None and str(unwritable).startswith("a/b: cannot be written: Read-only file system")
    assert no_room(FileNotFoundError(errno.ENOENT, "No such file")) is None
    assert no_room(ValueError("x")) is None
    with pytest.raises(sqlite3.OperationalError, match="no such table"), telling_no_room(tmp_path):
        sqlite3.connect(":memory:").execute("SELECT * FROM gone")
    with pytest.raises(DiskUnwritable, match="unable to open database file"), telling_no_room(tmp_path):
        sqlite3.connect(tmp_path / "nowhere" / "x.sqlite")


@contextmanager
def disk(folder: Path) -> Generator[Callable[[int], bool]]:
    """Mount a small disk; what it yields sets its size in KiB, if that is not less than what is on it."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("may not mount a tmpfs here")

    def resize(kilobytes: int) -> bool:
        remount = ["mount", "-o", f"remount,size={kilobytes}k", str(folder)]
        return subprocess.run(remount, capture_output=True, check=False).returncode == 0

    try:
        yield resize
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def effects(folder: Path) -> set[str]:
    """Return the jobs that had their effect outside; none had it twice."""
    had = (folder / "effects").read_text(encoding="utf-8").split()
    assert len(had) == len(set(had)), had
    return set(had)


def jobs_that_ended_well(run: Path) -> set[str]:
    ends = [entry.raw for entry in read_entries(run / "trail.sqlite") if entry.kind == "exit"]
    return {body["key"] for body in ends if body["manifest"]}


def used(folder: Path) -> int:
    return sum(path.stat().st_blocks for path in folder.rglob("*")) // 2


# Of a session whose jobs are processes little is left to be full in the end: what they leave is most of it.
ROOM = [
    pytest.param(FILES, [24], id=f"{FILES}-24"),
    pytest.param(POSTGRES, [24], marks=pytest.mark.slow, id=f"{POSTGRES}-24"),
    *[
        pytest.param(name, list(range(0, 1200, 96)), marks=pytest.mark.nightly, id=f"{name}-0-1200")
        for name in (FILES, POSTGRES, WRAPPERS, RAY)
    ],
]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("house", "rooms"), ROOM, indirect=["house"])
def test_a_session_whose_disk_is_full_pauses_and_goes_on(tmp_path: Path, house: FaultHouse, rooms: list[int]) -> None:
    """Room is given in small steps: the disk is full at another place each time, until the session ends.

    A job that finds no room for what it leaves fails, or is lost where it could not even claim; a person is asked.
    """
    with disk(tmp_path / "disk") as resize:
        run = house.open(tmp_path / "disk")
        paused = number = 0
        begun = used(tmp_path / "disk")
        for room in rooms:
            if not resize(begun + room):
                continue
            waits = is_waiting(History(read_entries(run / "trail.sqlite")))
            done = go_on(run, house, answer=RETRY if waits else None)
            assert resize(64 * 1024), "reading takes room too"
            entries = read_entries(run / "trail.sqlite")
            if entries[-1].kind == "close":
                break
            if is_waiting(History(entries)) and done.returncode == 0:
                number += 1
                assert house.jobs is not None, "a quick job has nothing of its own to write"
            else:
                check_paused(run, done)
                paused += 1
        assert paused
        before = keys(run)
        while read_entries(run / "trail.sqlite")[-1].kind != "close":
            house.go_on(run, answer=RETRY if is_waiting(History(read_entries(run / "trail.sqlite"))) else None)
        check_finished(run, before)
        assert house.jobs is None or effects(tmp_path / "disk") >= jobs_that_ended_well(run)
        print(f"{house.name}: paused {paused} times, asked a person {number} times")
