"""Jobs whose orchestrator is gone for longer than the spec allows end themselves; real processes, small times."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reviews.audit.verify import verify_run
from reviews.trail.tables.open_table import read_entries
from sessions.jobs.launcher import JobState
from sessions.jobs.local_launcher import LocalLauncher
from sessions.run.heartbeat import BEAT, Absence, beat, present
from specs.jobs.job_records import ExitRecord, JobOrder
from testing.factories.sessions_on_disk import first_order
from testing.fixtures.quick_session import QuickLauncher, drive, open_quick, quick_session

pytestmark = pytest.mark.integration

DRIVER = Path(__file__).parents[3] / "testing" / "fixtures" / "wrapper_driver.py"
SLEEP = "import time; time.sleep(60)"
LIMIT_S = 1.5
ORCHESTRATOR = """
import sys, time
from pathlib import Path
from sessions.run import heartbeat
heartbeat.BEAT_EVERY_S = 0.1
with heartbeat.present(Path(sys.argv[1])):
    time.sleep(60)
"""

Start = Callable[..., Path]


@pytest.fixture(scope="module")
def order(tmp_path_factory: pytest.TempPathFactory) -> JobOrder:
    return first_order(tmp_path_factory.mktemp("session") / "run")


@pytest.fixture
def start(tmp_path: Path, order: JobOrder) -> Iterator[Start]:
    """Return a function that starts a job in the run folder ``tmp_path`` and returns its folder."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(limit_s: float | None = LIMIT_S, program: str = SLEEP) -> Path:
        folder = tmp_path / "jobs" / order.key
        folder.mkdir(parents=True)
        limited = order.model_copy(update={"dead_man_minutes": None if limit_s is None else limit_s / 60})
        (folder / "order.json").write_bytes(limited.canonical())
        started.append(subprocess.Popen([sys.executable, str(DRIVER), program, str(folder)], cwd=folder))
        wait_for((folder / "heartbeat.json").exists)
        return folder

    yield begin
    for process in started:
        process.kill()
        process.wait()


def wait_for(what: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def ended(folder: Path) -> tuple[str, int]:
    wait_for(lambda: LocalLauncher().poll(folder).state == "exited")
    record = LocalLauncher().poll(folder).exit
    assert record is not None
    return record.reason, record.code


def runs(folder: Path) -> bool:
    return LocalLauncher().poll(folder) == JobState("running")


def test_a_job_outlives_its_orchestrator_and_not_for_ever(tmp_path: Path, start: Start) -> None:
    orchestrator = subprocess.Popen([sys.executable, "-c", ORCHESTRATOR, str(tmp_path)])
    try:
        wait_for((tmp_path / BEAT).exists)
        folder = start()
        time.sleep(1.3 * LIMIT_S)
        assert runs(folder), "ended although the orchestrator was there"
    finally:
        orchestrator.send_signal(signal.SIGKILL)
        orchestrator.wait()
    killed = time.monotonic()
    assert ended(folder) == ("dead_man", -signal.SIGTERM)
    assert time.monotonic() - killed > LIMIT_S / 2


def test_an_orchestrator_that_comes_back_in_time_keeps_it(tmp_path: Path, start: Start) -> None:
    folder = start()
    for _ in range(6):
        time.sleep(LIMIT_S / 5)
        beat(tmp_path)
    assert runs(folder)


def test_a_clock_that_is_set_back_or_forward_ends_nothing(tmp_path: Path, start: Start) -> None:
    beat(tmp_path)
    folder = start()
    # Forward, and then back and back again.
    for hours in (40, 30, 20, 10, 5, 4, 3):
        time.sleep(LIMIT_S / 5)
        moment = time.time() + hours * 3600
        os.utime(tmp_path / BEAT, (moment, moment))
    assert runs(folder), "ended because the clock was set"
    # The newest beat is from the future, and still no one comes.
    assert ended(folder)[0] == "dead_man"


def test_a_file_that_was_never_there_is_no_orchestrator(start: Start) -> None:
    assert ended(start())[0] == "dead_man"


def test_without_a_limit_it_runs_on(start: Start) -> None:
    folder = start(limit_s=None)
    time.sleep(0.5)
    assert runs(folder)


def test_the_reason_stays_when_the_stage_ends_well_on_being_asked(start: Start) -> None:
    program = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\ntime.sleep(60)"
    assert ended(start(program=program)) == ("dead_man", 0)


def test_absence_is_counted_from_the_last_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("sessions.run.heartbeat.time.monotonic", lambda: now[0])
    absence = Absence(tmp_path / BEAT)
    for moment, changes, too_long in (
        (159, False, False),
        (159.5, True, False),
        (219, False, False),
        (220, False, True),
    ):
        if changes:
            beat(tmp_path)
        now[0] = moment
        assert (absence.seconds() > 60) == too_long


def test_presence_goes_on_while_the_orchestrator_waits_and_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessions.run.heartbeat.BEAT_EVERY_S", 0.02)
    with present(tmp_path):
        absence = Absence(tmp_path / BEAT)
        for _ in range(10):
            time.sleep(0.1)
            assert absence.seconds() < 0.5
    last = (tmp_path / BEAT).stat().st_mtime_ns
    time.sleep(0.1)
    assert (tmp_path / BEAT).stat().st_mtime_ns == last


def test_a_folder_that_cannot_be_written_does_not_stop_the_orchestrator(tmp_path: Path) -> None:
    with present(tmp_path / "gone"):
        beat(tmp_path / "gone")


def test_what_was_ended_is_no_evidence_and_may_be_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are whole and its code is 0: it ended just as it was told to, and still it did not end by itself."""

    class Left(QuickLauncher):
        def start(self, folder: Path) -> None:
            super().start(folder)
            record = ExitRecord.model_validate_json((folder / "exit.json").read_bytes())
            if record.key == "small.sample.1":
                (folder / "exit.json").write_bytes(record.model_copy(update={"reason": "dead_man"}).canonical())

    def draw(*_: object) -> list[str]:
        return []

    monkeypatch.setattr("sessions.pages.report.plots.draw", draw)
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=Left()))
    judged = [entry.raw for entry in read_entries(run / "trail.sqlite") if entry.kind == "decision"]
    assert judged[-1]["stage"] == "sample" and judged[-1]["outcome"] == "escalate"
    assert "check jobs.exit is FAIL: the job ended with code 0 (dead_man)" in judged[-1]["reasons"]
    ordered = JobOrder.model_validate_json((run / "jobs" / "small.sample.1" / "order.json").read_bytes())
    assert ordered.dead_man_minutes == 720
    assert (run / BEAT).exists(), "no one showed that an orchestrator was there"
    again = {"answer": "retry", "reason": "no one was there", "by": "ada", "expires": None}
    drive(quick_session(run, launcher=Left()), again)
    entries = read_entries(run / "trail.sqlite")
    assert entries[-1].raw["decision"] == "approve"
    assert [entry.raw["key"] for entry in entries if entry.kind == "launch"][1:3] == [
        "small.sample.1",
        "small.sample.2",
    ]
    assert verify_run(run, "trail.sqlite", "store").exit_code == 0
