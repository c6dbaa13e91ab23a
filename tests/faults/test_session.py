"""Faults around a session: read-only and slow disks, clocks that are set, damaged databases, artifacts that are gone.

Each ends in a clear pause or error that says what helps, loses nothing, and the session goes on when the fault is gone.
Each runs where it has a meaning: a damaged page of a file in the houses with files, and so on; faults of a database are
in ``test_postgres.py``. Full disks are in ``test_disk_full.py``, faults of jobs in ``test_jobs.py`` and
``test_ray.py``, kills in ``tests/kill``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from reviews.trail.tables.open_table import read_entries
from sessions.jobs.launcher import JobState, Launcher
from sessions.run import run_layout
from specs.jobs.job_records import ExitRecord
from specs.system.errors import AuditDamage, EvidenceMissing, ExitCode, InvalidGrant
from testing.fixtures.fault_houses import (
    FILES,
    POSTGRES,
    POSTGRES_WRAPPERS,
    RAY,
    WRAPPERS,
    FaultHouse,
    Through,
    in_all,
    in_files,
    in_houses,
    in_houses_with,
)
from testing.fixtures.houses import is_gone, kill
from testing.fixtures.quick_session import drive, quick_session
from tests.faults.test_disk_full import HOME, check_finished, command, disk, go_on, keys
from tests.faults.test_jobs import RUNAWAY

pytestmark = pytest.mark.integration

SLOW_SYNC = """
#define _GNU_SOURCE
#include <unistd.h>
#include <sys/syscall.h>
static void slow(void) { usleep(40000); }
int fsync(int file) { slow(); return syscall(SYS_fsync, file); }
int fdatasync(int file) { slow(); return syscall(SYS_fdatasync, file); }
"""


SLOW_HERE = """
import os, time
quick = os.fsync
os.fsync = lambda file: (time.sleep(0.04), quick(file))
"""
KILLED_IN_THE_STORE = """
import os, signal, sys
from pathlib import Path
from reviews.trail.chain.store import Store

def die(file):
    os.kill(os.getpid(), signal.SIGKILL)

os.fsync = die
Store(Path(sys.argv[1])).put(b"half of it was on the disk")
"""
SAMPLES = "jobs/small.sample.1/out/accepted.jsonl"


class Stopped(Exception):
    """A test stops a session here."""


class Stopping(Through):
    """A launcher that stops the session before or after it has started a job."""

    def __init__(self, inner: Launcher, stage: str, after: bool = False) -> None:
        super().__init__(inner)
        self.stage, self.after = stage, after

    def start(self, folder: Path) -> None:
        stops = folder.name.split(".")[1] == self.stage
        if stops and not self.after:
            raise Stopped
        super().start(folder)
        if stops:
            raise Stopped


class LosingLauncher(Through):
    """The first attempt at a stage is lost; where jobs are processes, its wrapper is killed in the middle of it."""

    def __init__(self, inner: Launcher, house: FaultHouse, stage: str = "sample") -> None:
        super().__init__(inner)
        self.job, self.is_process = f"small.{stage}.1", house.jobs is not None
        self.killed = False

    def start(self, folder: Path) -> None:
        if self.is_process and folder.name == self.job:
            (folder / "program.py").write_text(f"{RUNAWAY}\ntime.sleep(600)", encoding="utf-8")
        super().start(folder)

    def poll(self, folder: Path) -> JobState:
        if folder.name == self.job:
            if not self.is_process:
                return JobState("lost")
            if not self.killed and (folder / "pid").exists() and (folder / "heartbeat.json").exists():
                kill(json.loads((folder / "heartbeat.json").read_bytes())["wrapper"])
                self.killed = True
        return super().poll(folder)


def stopped(house: FaultHouse, folder: Path, stage: str, after: bool = False) -> Path:
    """Return the run folder of a session that was stopped at a job."""
    run = house.open(folder)
    with pytest.raises(Stopped):
        house.go_on(run, Stopping(house.launcher(), stage, after))
    return run


def spoil(path: Path, page: int) -> None:
    """Overwrite a page of a SQLite file with what is none, and forget what the log next to it may hold."""
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    with path.open("r+b") as file:
        assert path.stat().st_size >= (page + 1) * 4096
        file.seek(page * 4096)
        file.write(b"\xff" * 4096)


# ---- disks --------------------------------------------------------------------------------------------------


def remounted(folder: Path, how: str) -> bool:
    return subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], capture_output=True).returncode == 0


@in_all()
def test_a_session_on_a_disk_that_became_read_only_pauses_and_goes_on(tmp_path: Path, house: FaultHouse) -> None:
    with disk(tmp_path / "disk"):
        run = stopped(house, tmp_path / "disk", "train")
        before = keys(run)
        # A wrapper that has left its record writes its last lines, and a disk is busy while anybody does.
        until = time.monotonic() + 30
        while not remounted(tmp_path / "disk", "ro"):
            assert time.monotonic() < until, "someone goes on writing"
            time.sleep(0.2)
        done = go_on(run, house)
        assert remounted(tmp_path / "disk", "rw")
        assert done.returncode == ExitCode.BLOCKED, (done.returncode, done.stderr)
        assert "Traceback" not in done.stderr and "make it writable" in done.stderr, done.stderr
        assert keys(run) == before
        house.go_on(run)
        check_finished(run, before)


@pytest.mark.slow
@in_all()
def test_a_disk_that_answers_slowly_changes_nothing_but_the_time(tmp_path: Path, house: FaultHouse) -> None:
    source, library = tmp_path / "slow.c", tmp_path / "slow.so"
    source.write_text(SLOW_SYNC, encoding="utf-8")
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to make fsync slow with")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    if house.jobs is not None:
        # What the job's own machine does: a launcher hands on named variables only.
        house.jobs.extra += SLOW_HERE
    run = house.open(tmp_path)
    begun = time.monotonic()
    done = subprocess.run(
        command(run, house),
        env=os.environ | {"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        cwd=HOME,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Of the entries of a trail in a database another disk has to say how long they take.
    waits = 0.04 * len([path for path in (run / "store").rglob("*") if path.is_file()])
    waits += 0.04 * len(keys(run)) if not house.name.startswith("postgres") else 0
    assert time.monotonic() - begun > waits, "the disk was not slow"
    check_finished(run, [])


# ---- clocks -------------------------------------------------------------------------------------------------


def set_clock(monkeypatch: pytest.MonkeyPatch, hours: list[float]) -> None:
    """Set the clock by the hours that stand in the list now; who waits by another clock notices nothing."""
    seconds, nanoseconds = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: seconds() + hours[0] * 3600)
    monkeypatch.setattr(time, "time_ns", lambda: nanoseconds() + int(hours[0] * 3600e9))


@in_all()
def test_a_clock_that_goes_back_again_and_again_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, house: FaultHouse
) -> None:
    hours = [0.0]

    class Backwards(Through):
        def start(self, folder: Path) -> None:
            super().start(folder)
            hours[0] -= 31

    set_clock(monkeypatch, hours)
    run = house.open(tmp_path)
    house.go_on(run, Backwards(house.launcher()))
    # Five jobs and their witnesses.
    assert hours[0] == -10 * 31
    times = [entry.time_ns for entry in read_entries(run / "trail.sqlite")]
    assert times == sorted(times)
    check_finished(run, [])


@in_all()
def test_a_job_over_which_the_clock_goes_back_costs_nothing_less_than_nothing_and_closes_the_gate(
    tmp_path: Path, house: FaultHouse
) -> None:
    class Earlier(Through):
        def poll(self, folder: Path) -> JobState:
            state = super().poll(folder)
            if state.exit is None:
                return state
            before = state.exit.started - 7200
            return JobState("exited", ExitRecord.model_validate(state.exit.model_dump() | {"ended": before}))

    run = house.open(tmp_path)
    house.go_on(run, Earlier(house.launcher()))
    entries = read_entries(run / "trail.sqlite")
    settled = [entry.raw["usd"] for entry in entries if entry.raw.get("what") == "settle"]
    assert settled and min(settled) >= 0
    decision = next(entry.raw for entry in reversed(entries) if entry.kind == "decision")
    assert decision["outcome"] == "escalate"


@in_all()
def test_a_grant_that_ran_out_while_the_clock_was_wrong_starts_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, house: FaultHouse
) -> None:
    """Set forward by two days between the grant and the job: refused, said why, and gone with the right time."""
    hours = [0.0]
    set_clock(monkeypatch, hours)
    run = stopped(house, tmp_path, "base")
    before = keys(run)
    hours[0] = 48
    with pytest.raises(InvalidGrant, match="the grant expired"):
        house.go_on(run)
    assert keys(run) == before
    hours[0] = 0
    house.go_on(run)
    check_finished(run, before)


# ---- databases ----------------------------------------------------------------------------------------------


@in_files()
def test_a_damaged_page_of_the_trail_stops_everything_and_nothing_is_added(tmp_path: Path, house: FaultHouse) -> None:
    run = stopped(house, tmp_path, "train")
    whole = (run / "trail.sqlite").read_bytes()
    for page in range(1, len(whole) // 4096, 15):
        (run / "trail.sqlite").write_bytes(whole)
        spoil(run / "trail.sqlite", page)
        spoiled = (run / "trail.sqlite").read_bytes()
        with pytest.raises(AuditDamage):
            quick = quick_session(run, launcher=house.launcher())
            quick.trail.verify_chain()
            drive(quick)
        assert (run / "trail.sqlite").read_bytes() == spoiled, "something was written after damage"
    for end in ("-wal", "-shm"):
        (run / f"trail.sqlite{end}").unlink(missing_ok=True)
    (run / "trail.sqlite").write_bytes(whole)
    before = keys(run)
    house.go_on(run)
    check_finished(run, before)


@in_files()
def test_a_session_that_asks_a_person_asks_again_in_every_process(tmp_path: Path, house: FaultHouse) -> None:
    run = house.open(tmp_path)
    house.go_on(run, LosingLauncher(house.launcher(), house))
    before = keys(run)
    assert read_entries(run / "trail.sqlite")[-1].raw.get("outcome") == "escalate"
    if house.jobs is not None:
        runaway = int((run / "jobs" / "small.sample.1" / "pid").read_text())
        assert is_gone(runaway), "what the lost job had started goes on"
    house.go_on(run)
    assert keys(run) == before, "asking has an effect"
    house.go_on(run, answer={"answer": "retry", "reason": "lost", "by": "ada", "expires": None})
    check_finished(run, before)


# ---- artifacts ----------------------------------------------------------------------------------------------


@in_houses_with(
    "path",
    {
        FILES: ("model", SAMPLES),
        POSTGRES: ("model",),
        WRAPPERS: (SAMPLES,),
        POSTGRES_WRAPPERS: (SAMPLES,),
        RAY: (SAMPLES,),
    },
    slow=(SAMPLES,),
)
def test_an_input_that_is_gone_starts_no_job(tmp_path: Path, house: FaultHouse, path: str) -> None:
    run = stopped(house, tmp_path, "train")
    before = keys(run)
    there = tmp_path / "model" if path == "model" else run / path
    away = tmp_path / "away"
    there.rename(away)
    with pytest.raises(EvidenceMissing, match=r"input '(model|examples)' cannot be read"):
        house.go_on(run)
    assert [key for key in keys(run) if key not in before] == [], "something was recorded"
    away.rename(there)
    house.go_on(run)
    check_finished(run, before)


@in_houses(FILES, POSTGRES)
def test_a_file_of_the_store_that_a_kill_left_half_written_is_no_damage(tmp_path: Path, house: FaultHouse) -> None:
    run = stopped(house, tmp_path, "train")
    before = keys(run)
    there = {path for path in (run / "store").rglob("*") if path.is_file()}
    killed = subprocess.run([sys.executable, "-c", KILLED_IN_THE_STORE, str(run / "store")], cwd=HOME, check=False)
    assert killed.returncode == -signal.SIGKILL
    paths = {path for path in (run / "store").rglob("*") if path.is_file()} - there
    assert len(paths) == 1, "nothing was left: there is nothing to test"
    house.go_on(run)
    check_finished(run, before)


@in_all()
def test_rows_that_are_gone_close_the_gate_and_are_reported(tmp_path: Path, house: FaultHouse) -> None:
    """What a gate computes from must be there: gone between the end of a job and its measure, nothing is measured."""
    run = stopped(house, tmp_path, "base", after=True)

    class Gone(Through):
        def poll(self, folder: Path) -> JobState:
            state = super().poll(folder)
            if state.state == "exited":
                (folder / "out" / "rows.jsonl").unlink(missing_ok=True)
            return state

    house.go_on(run, Gone(house.launcher()))
    entries = read_entries(run / "trail.sqlite")
    decided: dict[str, Any] = entries[-1].raw
    assert decided["outcome"] == "escalate" and decided["stage"] == "base"
    assert any("jobs.outputs is BLOCKED" in reason for reason in decided["reasons"]), decided["reasons"]
    assert run_layout.require_run(run) == run
