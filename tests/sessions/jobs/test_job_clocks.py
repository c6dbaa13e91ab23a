"""What a job's exit record says of its time is believed as far as the session saw it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from reviews.trail.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.jobs import claim
from sessions.jobs.launcher import HERE, JobState
from sessions.nodes import act
from specs.job_records import ExitRecord, Observed
from tests.fixtures.quick_session import QuickLauncher, drive, open_quick, quick_session

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
    return [one.body for one in read_entries(run / "trail.sqlite") if one.entry.kind == kind]


def _checks(run: Path, stage: str) -> dict[str, dict[str, Any]]:
    (body,) = (one for one in _of(run, "checks") if one["stage"] == stage)
    return {one["id"]: one for one in json.loads(Store(run / "store").get(body["checks"]))}


@pytest.mark.parametrize("seconds", [-1e9, 1e300, 70.0])
def test_a_forged_time_costs_no_more_than_was_seen_and_closes_the_gate(tmp_path: Path, seconds: float) -> None:
    launcher = Forged()
    launcher.seconds = seconds
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=launcher))
    (settled,) = (one for one in _of(run, "spend") if one["what"] == "settle" and one["job"] == "small.base.1")
    assert 0 <= settled["usd"] <= 0.05, "of 0.3333 USD that are reserved, and of a minute that was seen"
    found = _checks(run, "base")["jobs.clock"]
    assert found["status"] == "FAIL" and "the record or a clock is wrong" in found["detail"]
    (decision,) = (one for one in _of(run, "decision") if one["stage"] == "base")
    assert decision["outcome"] == "escalate"


def test_a_true_time_passes_and_its_session_comes_to_its_end(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run))
    assert {_checks(run, stage)["jobs.clock"]["status"] for stage in ("base", "train", "ship")} == {"PASS"}
    assert len(_of(run, "close")) == 1


class Alive(QuickLauncher):
    """Its process is seen on this machine for a while, and its record says that it took no time."""

    def poll(self, folder: Path) -> JobState:
        found = super().poll(folder)
        return JobState("running", is_here=True) if found.state == "running" else found


def test_a_process_that_was_seen_for_longer_than_its_record_states_closes_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = iter(range(1000))
    real = time.monotonic
    monkeypatch.setattr(act.time, "monotonic", lambda: real() + 3600 * next(hours))
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=Alive(polls_before_the_end=3)))
    (ended,) = (one for one in _of(run, "exit") if one["stage"] == "base")
    assert ended["observed"]["at_least_s"] > 3600
    assert _checks(run, "base")["jobs.clock"]["status"] == "FAIL"


def test_the_time_between_orchestrators_counts_as_time_the_job_may_have_taken() -> None:
    seen = Observed(at_least_s=0.0, at_most_s=7200.0)
    assert seen.fits(7100) and seen.fits(7250) and not seen.fits(7400) and not seen.fits(-0.001)
    assert [seen.bounded(one) for one in (-5, 100, 1e9)] == [0, 100, 7200]
    here = Observed(at_least_s=600.0, at_most_s=700.0)
    assert [here.bounded(one) for one in (0, 595, 650)] == [600, 600, 650]


class OtherHours(QuickLauncher):
    """The exit record of the first job states other hours."""

    def __init__(self, forged_h: float, name: str = HERE) -> None:
        super().__init__(name=name)
        self._forged_s = 3600 * forged_h

    def start(self, folder: Path) -> None:
        super().start(folder)
        record = ExitRecord.model_validate_json((folder / "exit.json").read_bytes())
        if ".base." in record.key and not record.key.endswith("witness"):
            moved = {"started": record.started + self._forged_s, "ended": record.ended + self._forged_s}
            (folder / "exit.json").write_bytes(record.model_copy(update=moved).canonical())


@pytest.mark.parametrize(
    ("forged_h", "name", "status"),
    [(-2.0, HERE, "FAIL"), (2.0, HERE, "FAIL"), (0.0, HERE, "PASS"), (-2.0, "ray", "WARN")],
)
def test_hours_that_do_not_fit_close_the_gate_where_the_job_reads_this_clock(
    tmp_path: Path, forged_h: float, name: str, status: str
) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=OtherHours(forged_h, name)))
    assert _checks(run, "base")["jobs.times"]["status"] == status
    (launch,) = (one for one in _of(run, "launch") if one["stage"] == "base")
    assert ("clock" in launch) == (name == HERE), "of a machine elsewhere nothing is known"


def test_another_start_of_the_machine_is_another_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boots = (f"boot {number}" for number in range(1000))
    monkeypatch.setattr(claim, "_boot", lambda: next(boots))
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=OtherHours(-2.0)))
    assert _checks(run, "base")["jobs.times"]["status"] == "WARN"


@pytest.mark.parametrize(("before_h", "meanwhile_h", "status"), [(-31, 0, "PASS"), (0, -31, "WARN"), (0, 31, "PASS")])
def test_a_clock_that_is_set_accuses_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before_h: float, meanwhile_h: float, status: str
) -> None:
    """Set before the launch, or between it and the start: entries of a trail do not go back in time, clocks do."""
    hours, seconds, nanoseconds = [0.0], time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: seconds() + hours[0] * 3600)
    monkeypatch.setattr(time, "time_ns", lambda: nanoseconds() + int(hours[0] * 3600e9))

    class Set(QuickLauncher):
        def start(self, folder: Path) -> None:
            hours[0] += meanwhile_h
            super().start(folder)

    run = open_quick(tmp_path)
    hours[0] += before_h
    drive(quick_session(run, launcher=Set()))
    found = _checks(run, "base")
    assert found["jobs.times"]["status"] == status, found["jobs.times"]
    assert found["jobs.clock"]["status"] == "PASS", found["jobs.clock"]
