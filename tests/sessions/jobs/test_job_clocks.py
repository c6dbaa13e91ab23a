"""What a job's exit record says of its time is believed as far as the session saw it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from reviews.audit.verify import verify_run
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.jobs.launcher import HERE, JobState
from sessions.nodes import act, job_end
from sessions.run.money.ledger import active_hours
from specs.jobs.job_records import ExitRecord, MachineClock, ObservedRuntime
from specs.system.digests import digest_bytes
from specs.trail.entry import GENESIS, Entry
from testing.factories.bodies import body_of
from testing.fixtures.quick_session import QuickLauncher, Silent, drive, open_quick, quick_session

pytestmark = pytest.mark.integration


class Forged(QuickLauncher):
    """The exit record of the first job states another time than the job took."""

    seconds = 0.0

    def start(self, folder: Path) -> None:
        super().start(folder)
        record = ExitRecord.model_validate_json((folder / "exit.json").read_bytes())
        if ".base." in record.key:
            forged = record.model_copy(update={"ended": record.started + self.seconds})
            (folder / "exit.json").write_bytes(forged.canonical())


def _of(run: Path, kind: str) -> list[dict[str, Any]]:
    return [entry.raw for entry in read_entries(run / "trail.sqlite") if entry.kind == kind]


def _checks(run: Path, stage: str) -> dict[str, dict[str, Any]]:
    (body,) = (row for row in _of(run, "checks") if row["stage"] == stage)
    return {load["id"]: load for load in json.loads(Store(run / "store").get(body["checks"]))}


@pytest.mark.parametrize("seconds", [-1e9, 1e300, 70.0])
def test_a_forged_time_costs_no_more_than_was_seen_and_closes_the_gate(tmp_path: Path, seconds: float) -> None:
    launcher = Forged()
    launcher.seconds = seconds
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=launcher))
    (settled,) = (row for row in _of(run, "spend") if row["what"] == "settle" and row["job"] == "small.base.1")
    assert 0 <= settled["usd"] <= 0.05, "of 0.3333 USD that are reserved, and of a minute that was seen"
    results = _checks(run, "base")["jobs.clock"]
    assert results["status"] == "FAIL" and "the record or a clock is wrong" in results["detail"]
    (decision,) = (row for row in _of(run, "decision") if row["stage"] == "base")
    assert decision["outcome"] == "escalate"


def test_a_true_time_passes_and_its_session_comes_to_its_end(closed_quick: Path) -> None:
    assert {_checks(closed_quick, stage)["jobs.clock"]["status"] for stage in ("base", "train", "ship")} == {"PASS"}
    assert len(_of(closed_quick, "close")) == 1


class Alive(QuickLauncher):
    """Its process is seen on this machine for a while, and its record says that it took no time."""

    def poll(self, folder: Path) -> JobState:
        state = super().poll(folder)
        return JobState("running", is_here=True) if state.state == "running" else state


def test_a_process_that_was_seen_for_longer_than_its_record_states_closes_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = iter(range(1000))
    real = time.monotonic
    monkeypatch.setattr(act.time, "monotonic", lambda: real() + 3600 * next(hours))
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=Alive(polls_before_the_end=3)))
    (ended,) = (row for row in _of(run, "exit") if row["stage"] == "base")
    assert ended["observed"]["at_least_s"] > 3600
    assert _checks(run, "base")["jobs.clock"]["status"] == "FAIL"


def test_the_time_between_orchestrators_counts_as_time_the_job_may_have_taken() -> None:
    seen = ObservedRuntime(at_least_s=0.0, at_most_s=7200.0)
    assert seen.fits(7100) and seen.fits(7250) and not seen.fits(7400) and not seen.fits(-0.001)
    assert [seen.bound_seconds(number) for number in (-5, 100, 1e9)] == [0, 100, 7200]
    here = ObservedRuntime(at_least_s=600.0, at_most_s=700.0)
    assert [here.bound_seconds(number) for number in (0, 595, 650)] == [600, 600, 650]


class OtherHours(QuickLauncher):
    """The exit record of the first job states two hours earlier than it ran."""

    def start(self, folder: Path) -> None:
        super().start(folder)
        record = ExitRecord.model_validate_json((folder / "exit.json").read_bytes())
        if ".base." in record.key and not record.key.endswith("witness"):
            moved = {"started": record.started - 7200, "ended": record.ended - 7200}
            (folder / "exit.json").write_bytes(record.model_copy(update=moved).canonical())


@pytest.mark.parametrize(("name", "status"), [(HERE, "FAIL"), ("ray", "WARN")])
def test_other_hours_close_the_gate_where_the_job_reads_this_clock(tmp_path: Path, name: str, status: str) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=OtherHours(name=name)))
    assert _checks(run, "base")["jobs.times"]["status"] == status
    (launch,) = (row for row in _of(run, "launch") if row["stage"] == "base")
    assert ("clock" in launch) == (name == HERE), "of a machine elsewhere nothing is known"


def test_a_clock_that_was_set_back_before_a_launch_accuses_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entries of a trail do not go back in time, clocks do."""
    run, seconds, nanoseconds = open_quick(tmp_path), time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: seconds() - 31 * 3600)
    monkeypatch.setattr(time, "time_ns", lambda: nanoseconds() - int(31 * 3600e9))
    drive(quick_session(run))
    results = _checks(run, "base")
    assert (results["jobs.times"]["status"], results["jobs.clock"]["status"]) == ("PASS", "PASS")


def _clock(boot: str, up_s: float, at: float) -> MachineClock:
    return MachineClock(boot=boot, up_s=up_s, time=at)


@pytest.mark.parametrize(
    ("then", "now", "most", "moved"),
    [
        (_clock("a", 50.0, 1000.0), _clock("a", 80.0, 1030.0), 30.0, 0.0),
        (_clock("a", 50.0, 1000.0), _clock("a", 80.0, 1030.0 - 7200), 30.0, -7200.0),
        (_clock("a", 50.0, 1000.0), _clock("a", 80.0, 1030.0 + 7200), 30.0, 7200.0),
        # Another start of the machine, another machine, or a system that does not tell: the entry's time counts.
        (_clock("a", 50.0, 1000.0), _clock("b", 80.0, 1030.0), 500.0, None),
        (_clock("a", 50.0, 1000.0), None, 500.0, None),
        (None, _clock("a", 80.0, 1030.0), 500.0, None),
    ],
)
def test_time_is_taken_by_a_clock_that_no_one_sets(
    monkeypatch: pytest.MonkeyPatch,
    then: MachineClock | None,
    now: MachineClock | None,
    most: float,
    moved: float | None,
) -> None:
    monkeypatch.setattr(job_end, "clock_here", lambda: now)
    monkeypatch.setattr(job_end.time, "time", lambda: 1500.0)
    body = body_of("launch", clock=then.model_dump(mode="json") if then else None)
    entry = Entry(
        seq=1, kind="launch", session="s", key="launch/s.a.1", time_ns="1000000000000", previous=GENESIS, body=body
    )
    launch: RecordedEntry[Any] = RecordedEntry(entry, digest_bytes(entry.canonical()))
    seen = job_end.observed_from(launch, 0.0)
    assert (seen.at_most_s, seen.clock_set_s) == (most, moved)


def test_a_clock_that_jumps_forward_for_seconds_ends_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hours of a session are counted by a clock that no one sets, and a jump is named."""
    ahead, seconds, nanoseconds = [0.0], time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: seconds() + ahead[0])
    monkeypatch.setattr(time, "time_ns", lambda: nanoseconds() + int(ahead[0] * 1e9))

    class Jumping(QuickLauncher):
        def start(self, folder: Path) -> None:
            ahead[0] = 10 * 365 * 86400.0 if folder.name == "small.base.1" else 0.0
            super().start(folder)

    run, display = open_quick(tmp_path), Silent()
    drive(quick_session(run, launcher=Jumping(polls_before_the_end=2), display=display))  # type: ignore[arg-type]
    entries = read_entries(run / "trail.sqlite")
    assert entries[-1].kind == "close" and entries[-1].raw["decision"] == "approve"
    assert active_hours(entries) < 1
    named = [line for line in display.lines if "the clock of this machine was set" in line]
    assert len(named) == 2 and "forward by 87600.0 h" in named[0] and "back by 87600.0 h" in named[1]
    assert verify_run(run, "trail.sqlite", "store").damage == []
