"""Faults around a session: read-only and slow disks, clocks that are set, damaged databases, artifacts that are gone.

Each ends in a clear pause or error that says what helps, loses nothing, and the session goes on when the fault is gone.
Full disks are in ``test_disk_full.py``, faults of jobs in ``test_faults_jobs.py``, kills in ``tests/kill``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from reviews.trail import read_entries
from sessions import runtime
from sessions.jobs.launcher import JobState
from sessions.savers import STATE
from specs.errors import AuditDamage, Blocked, EvidenceMissing, ExitCode, GrantRefused
from specs.evidence import ExitRecord
from tests.fixtures.quick_session import QuickLauncher, drive, open_quick, quick_session
from tests.integration.test_disk_full import HOME, SESSION, check_finished, disk, go_on, keys

SLOW_SYNC = """
#define _GNU_SOURCE
#include <unistd.h>
#include <sys/syscall.h>
static void slow(void) { usleep(40000); }
int fsync(int file) { slow(); return syscall(SYS_fsync, file); }
int fdatasync(int file) { slow(); return syscall(SYS_fdatasync, file); }
"""


KILLED_IN_THE_STORE = """
import os, signal, sys
from pathlib import Path
from reviews.store import Store

def die(file):
    os.kill(os.getpid(), signal.SIGKILL)

os.fsync = die
Store(Path(sys.argv[1])).put(b"half of it was on the disk")
"""


class Stopped(Exception):
    """A test stops a session here."""


class Stopping(QuickLauncher):
    """A launcher that stops the session before or after it has started a job."""

    def __init__(self, stage: str, after: bool = False) -> None:
        super().__init__()
        self.stage, self.after = stage, after

    def start(self, folder: Path) -> None:
        stops = folder.name.split(".")[1] == self.stage
        if stops and not self.after:
            raise Stopped
        super().start(folder)
        if stops:
            raise Stopped


@pytest.fixture(autouse=True)
def nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(*_: object) -> list[str]:
        return []

    monkeypatch.setattr("sessions.plots.draw", draw)


def stopped(folder: Path, stage: str, after: bool = False) -> Path:
    """Return the run folder of a session that was stopped at a job."""
    run = open_quick(folder)
    with pytest.raises(Stopped):
        drive(quick_session(run, launcher=Stopping(stage, after)))
    return run


def spoil(path: Path, page: int) -> None:
    """Overwrite a page of a SQLite file with what is none, and forget what the log beside it may hold."""
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    with path.open("r+b") as file:
        assert path.stat().st_size >= (page + 1) * 4096
        file.seek(page * 4096)
        file.write(b"\xff" * 4096)


# ---- disks --------------------------------------------------------------------------------------------------


def test_a_session_on_a_disk_that_became_read_only_pauses_and_goes_on(tmp_path: Path) -> None:
    with disk(tmp_path / "disk"):
        run = stopped(tmp_path / "disk", "train")
        before = keys(run)
        remount = ["mount", "-o", "remount,{}", str(tmp_path / "disk")]
        subprocess.run([one.format("ro") for one in remount], check=True, capture_output=True)
        done = go_on(run)
        subprocess.run([one.format("rw") for one in remount], check=True, capture_output=True)
        assert done.returncode == ExitCode.BLOCKED, (done.returncode, done.stderr)
        assert "Traceback" not in done.stderr and "make it writable" in done.stderr, done.stderr
        assert keys(run) == before
        drive(quick_session(run))
        check_finished(run, before)


def test_a_disk_that_answers_slowly_changes_nothing_but_the_time(tmp_path: Path) -> None:
    source, library = tmp_path / "slow.c", tmp_path / "slow.so"
    source.write_text(SLOW_SYNC, encoding="utf-8")
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to make fsync slow with")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    run = open_quick(tmp_path)
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", SESSION, str(run)],
        env=os.environ | {"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        cwd=HOME,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    waits = 0.04 * len(keys(run))
    assert time.monotonic() - begun > waits, "the disk was not slow"
    check_finished(run, [])


# ---- clocks -------------------------------------------------------------------------------------------------


def set_clock(monkeypatch: pytest.MonkeyPatch, hours: list[float]) -> None:
    """Set the clock by the hours that stand in the list now; who waits by another clock notices nothing."""
    seconds, nanoseconds = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: seconds() + hours[0] * 3600)
    monkeypatch.setattr(time, "time_ns", lambda: nanoseconds() + int(hours[0] * 3600e9))


def test_a_clock_that_goes_back_again_and_again_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hours = [0.0]

    class Backwards(QuickLauncher):
        def start(self, folder: Path) -> None:
            super().start(folder)
            hours[0] -= 31

    set_clock(monkeypatch, hours)
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=Backwards()))
    assert hours[0] == -5 * 31
    times = [int(one.entry.time_ns) for one in read_entries(run / "trail.sqlite")]
    assert times == sorted(times)
    check_finished(run, [])


def test_a_job_over_which_the_clock_goes_back_costs_nothing_less_than_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Earlier(QuickLauncher):
        def poll(self, folder: Path) -> JobState:
            found = super().poll(folder)
            assert found.exit is not None
            before = found.exit.started - 7200
            return JobState("exited", ExitRecord.model_validate(found.exit.model_dump() | {"ended": before}))

    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=Earlier()))
    settled = [one.body["usd"] for one in read_entries(run / "trail.sqlite") if one.body.get("what") == "settle"]
    assert settled and min(settled) >= 0


def test_a_grant_that_ran_out_while_the_clock_was_wrong_starts_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set forward by two days between the grant and the job: refused, said why, and gone with the right time."""
    hours = [0.0]
    set_clock(monkeypatch, hours)
    run = stopped(tmp_path, "base")
    before = keys(run)
    hours[0] = 48
    with pytest.raises(GrantRefused, match="the grant expired"):
        drive(quick_session(run))
    assert keys(run) == before
    hours[0] = 0
    drive(quick_session(run))
    check_finished(run, before)


# ---- databases ----------------------------------------------------------------------------------------------


def test_a_damaged_page_of_the_trail_stops_everything_and_nothing_is_added(tmp_path: Path) -> None:
    run = stopped(tmp_path, "train")
    whole = (run / "trail.sqlite").read_bytes()
    for page in range(1, len(whole) // 4096, 15):
        (run / "trail.sqlite").write_bytes(whole)
        spoil(run / "trail.sqlite", page)
        spoiled = (run / "trail.sqlite").read_bytes()
        with pytest.raises(AuditDamage):
            quick = quick_session(run)
            quick.trail.verify_chain()
            drive(quick)
        assert (run / "trail.sqlite").read_bytes() == spoiled, "something was written after damage"
    for end in ("-wal", "-shm"):
        (run / f"trail.sqlite{end}").unlink(missing_ok=True)
    (run / "trail.sqlite").write_bytes(whole)
    before = keys(run)
    drive(quick_session(run))
    check_finished(run, before)


@pytest.mark.parametrize(("page", "after"), [(0, False), (1, True), (3, False)])
def test_damaged_checkpoints_of_the_graph_are_put_aside_and_the_trail_is_gone_on_from(
    tmp_path: Path, page: int, after: bool
) -> None:
    run = stopped(tmp_path, "train", after)
    before = keys(run)
    spoil(run / STATE, page)
    with pytest.raises(Blocked, match="the checkpoints of the graph are damaged") as told:
        drive(quick_session(run))
    assert "kept as state.sqlite.damaged.1" in str(told.value) and told.value.exit_code == ExitCode.BLOCKED
    assert keys(run) == before
    assert (run / f"{STATE}.damaged.1").exists()
    drive(quick_session(run))
    check_finished(run, before)


@pytest.mark.parametrize("gone", [False, True])
def test_without_its_checkpoints_a_session_that_asks_a_person_asks_again(tmp_path: Path, gone: bool) -> None:
    class Lost(QuickLauncher):
        def poll(self, folder: Path) -> JobState:
            return JobState("lost") if folder.name == "small.sample.1" else super().poll(folder)

    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=Lost()))
    before = keys(run)
    assert read_entries(run / "trail.sqlite")[-1].body.get("outcome") == "escalate"
    if gone:
        for path in run.glob(f"{STATE}*"):
            path.unlink()
    else:
        spoil(run / STATE, 1)
        with pytest.raises(Blocked):
            drive(quick_session(run, launcher=Lost()))
    drive(quick_session(run, launcher=Lost()))
    assert keys(run) == before, "asking has an effect"
    drive(quick_session(run, launcher=Lost()), {"answer": "retry", "reason": "lost", "by": "ada", "expires": None})
    check_finished(run, before)


# ---- artifacts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["model", "jobs/small.sample.1/out/accepted.jsonl"])
def test_an_input_that_is_gone_starts_no_job(tmp_path: Path, path: str) -> None:
    run = stopped(tmp_path, "train")
    before = keys(run)
    there = tmp_path / "model" if path == "model" else run / path
    away = tmp_path / "away"
    there.rename(away)
    with pytest.raises(EvidenceMissing, match=r"input '(model|examples)' cannot be read"):
        drive(quick_session(run))
    assert [key for key in keys(run) if key not in before] == [], "something was recorded"
    away.rename(there)
    drive(quick_session(run))
    check_finished(run, before)


def test_a_file_of_the_store_that_a_kill_left_half_written_is_no_damage(tmp_path: Path) -> None:
    run = stopped(tmp_path, "train")
    before = keys(run)
    there = {path for path in (run / "store").rglob("*") if path.is_file()}
    killed = subprocess.run([sys.executable, "-c", KILLED_IN_THE_STORE, str(run / "store")], cwd=HOME, check=False)
    assert killed.returncode == -signal.SIGKILL
    left = {path for path in (run / "store").rglob("*") if path.is_file()} - there
    assert len(left) == 1, "nothing was left: there is nothing to test"
    drive(quick_session(run))
    check_finished(run, before)


def test_rows_that_are_gone_close_the_gate_and_are_told(tmp_path: Path) -> None:
    """What a gate computes from must be there: gone between the end of a job and its measure, nothing is measured."""
    run = stopped(tmp_path, "base", after=True)

    class Gone(QuickLauncher):
        def poll(self, folder: Path) -> JobState:
            (folder / "out" / "rows.jsonl").unlink(missing_ok=True)
            return super().poll(folder)

    drive(quick_session(run, launcher=Gone()))
    entries = read_entries(run / "trail.sqlite")
    decided: dict[str, Any] = entries[-1].body
    assert decided["outcome"] == "escalate" and decided["stage"] == "base"
    assert any("jobs.outputs is BLOCKED" in reason for reason in decided["reasons"]), decided["reasons"]
    assert runtime.require_run(run) == run
