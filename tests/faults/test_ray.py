"""Faults of jobs on Ray, where it matters that Ray has started the wrapper, and faults of a cluster. Needs Ray.

What a wrapper does by itself (its log, its claim, its clock) is the same anyone who starts it: ``test_jobs.py``.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reviews.history.history import History
from reviews.trail.tables.open_table import read_entries
from sessions.jobs.engine_launcher import EngineLauncher, EngineUnavailable
from sessions.jobs.launcher import JobState, Launcher
from sessions.jobs.ray.cluster_head import SessionCluster, end_left_over
from sessions.jobs.ray.ray_engine import Cluster, RayEngine
from sessions.pages.overview import is_waiting
from sessions.run.heartbeat import present
from specs.jobs.job_records import JobOrder
from specs.system.errors import ExitCode
from testing.factories.sessions_on_disk import first_order
from testing.fixtures.fault_houses import RAY, WRAPPERS, FaultHouse, Through, in_houses
from testing.fixtures.houses import IMPATIENT, House, ended, is_gone, kill, running, until
from testing.fixtures.tiny_training import tiny_checkpoint
from tests.faults.test_disk_full import check_finished, disk, effects, jobs_that_ended_well, keys
from tests.faults.test_jobs import NOWHERE_TO_SAY
from tests.faults.test_session import Stopped, Stopping
from tests.kill.house import TRAINING

pytestmark = [pytest.mark.integration, pytest.mark.nightly, pytest.mark.timeout(1800)]
RETRY: dict[str, Any] = {"answer": "retry", "reason": "it was lost", "by": "ada", "expires": None}
SLEEP = "import sys, time; open(sys.argv[1] + '/began', 'w').close(); time.sleep(600)"
FILLS = """
import errno, sys, time
open(sys.argv[1] + '/began', 'w').close()
try:
    with open(sys.argv[1] + '/fill', 'wb', buffering=0) as fill:
        while True:
            fill.write(b'x' * 4096)
except OSError as error:
    assert error.errno == errno.ENOSPC
time.sleep(1)
raise SystemExit(3)
"""


@pytest.fixture(scope="module")
def order(tmp_path_factory: pytest.TempPathFactory) -> JobOrder:
    return first_order(tmp_path_factory.mktemp("session") / "run")


@pytest.fixture
def on_ray(tmp_path: Path, fault_cluster: tuple[str, str]) -> Iterator[Callable[..., House]]:
    """Return a function that makes a place for jobs on the cluster; what runs there is ended."""
    made: list[House] = []

    def make(folder: Path = tmp_path, extra: str = "") -> House:
        made.append(House("ray", folder, fault_cluster, extra))
        return made[-1]

    yield make
    for house in made:
        house.close()


# ---- jobs -------------------------------------------------------------------------------------------------------


def test_every_signal_that_asks_a_wrapper_of_ray_to_end_ends_the_stage_first(
    on_ray: Callable[..., House], order: JobOrder
) -> None:
    house = on_ray()
    launcher = house.launcher()
    requests = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    folders = {number: house.job(order, SLEEP, number) for number in requests}
    for folder in folders.values():
        launcher.start(folder)
    for number, folder in folders.items():
        pids = running(launcher, folder)
        os.kill(pids["wrapper"], number)
        record = ended(launcher, folder)
        assert (record.code, record.reason) == (-signal.SIGTERM, "cancelled")
        until(lambda pid=pids["stage"]: is_gone(pid))


@pytest.mark.parametrize("message", ["", NOWHERE_TO_SAY], ids=["log", "full-log"])
def test_an_exit_record_of_a_job_on_ray_waits_for_room(
    tmp_path: Path, on_ray: Callable[..., House], order: JobOrder, message: str
) -> None:
    """The job itself fills the disk that its folder is on; with a full log, Ray's own disk is full too."""
    with disk(tmp_path / "disk"):
        house = on_ray(tmp_path / "disk", message)
        folder = house.job(order, FILLS)
        launcher = house.launcher()
        # Who would give it up.
        strict = EngineLauncher(house.engine(), python=house.python, patience={**IMPATIENT, "running": 0.5})
        launcher.start(folder)
        stage = running(launcher, folder)["stage"]
        until(lambda: is_gone(stage))
        until_then = time.monotonic() + 4
        while time.monotonic() < until_then:
            assert launcher.poll(folder) == JobState("running")
            time.sleep(0.2)
        # It has to write so, which tells that the disk is full and ends nothing.
        with pytest.raises(OSError, match="No space left") as caught:
            until(lambda: strict.poll(folder).state != "running", 30)
        assert caught.value.errno == errno.ENOSPC
        (folder / "fill").unlink()
        record = ended(launcher, folder)
        assert (record.code, record.reason) == (3, "exited")
        assert [path.name for path in folder.glob(".*")] in ([], [".heartbeat.json"])
        house.close()


class Filling(Through):
    """A job fills the disk of the session; some seconds later there is room again."""

    def __init__(self, inner: Launcher, job: str) -> None:
        super().__init__(inner)
        self.job, self.full_for = job, 0.0
        self.since: float | None = None

    def start(self, folder: Path) -> None:
        if folder.name == self.job:
            (folder / "program.py").write_text(FILLS, encoding="utf-8")
        super().start(folder)

    def poll(self, folder: Path) -> JobState:
        is_full = (folder / "fill").exists()
        state = super().poll(folder)
        if folder.name == self.job and is_full:
            assert state.state == "running", state
            self.since = self.since or time.monotonic()
            self.full_for = time.monotonic() - self.since
            if self.full_for > 6:
                (folder / "fill").unlink(missing_ok=True)
        return state


@in_houses(WRAPPERS, RAY)
def test_a_job_that_fills_the_disk_is_waited_for_and_judged_by_its_own_end(tmp_path: Path, house: FaultHouse) -> None:
    with disk(tmp_path / "disk"):
        run = house.open(tmp_path / "disk")
        filling = Filling(house.launcher(), "small.sample.1")
        house.go_on(run, filling)
        entries = read_entries(run / "trail.sqlite")
        assert filling.full_for > 6 and is_waiting(History(entries))
        (end,) = [entry.raw for entry in entries if entry.key == "exit/small.sample.1"]
        assert end["manifest"] is None
        before = keys(run)
        house.go_on(run, answer=RETRY)
        check_finished(run, before)
        assert effects(tmp_path / "disk") == jobs_that_ended_well(run)


@in_houses(WRAPPERS, RAY)
def test_a_lost_training_goes_on_from_its_last_step_to_the_same_weights(tmp_path: Path, house: FaultHouse) -> None:
    model = tiny_checkpoint(tmp_path / "trained")
    ends: dict[str, dict[str, str]] = {}
    for name in ("whole", "lost"):
        (tmp_path / name).mkdir()
        run = house.open(tmp_path / name, *TRAINING, model=model)
        # Anyone who looks twice a second finds a training that has ended.
        watch = threading.Thread(target=killed_after_a_step, args=(run,), daemon=True)
        if name == "lost":
            watch.start()
        house.go_on(run)
        if name == "lost":
            watch.join(60)
            assert is_waiting(History(read_entries(run / "trail.sqlite"))), "the wrapper was not killed in time"
            house.go_on(run, answer=RETRY)
        check_finished(run, [])
        entries = read_entries(run / "trail.sqlite")
        (*_, last) = [entry.raw for entry in entries if entry.key.startswith("exit/small.train.")]
        ends[name] = {output: item["digest"] for output, item in last["outputs"].items()}
    assert ends["lost"] == ends["whole"]
    launches = [entry.raw for entry in entries if entry.key.startswith("launch/small.train.")]
    assert len(launches) == 2 and launches[0].get("resumes") is None
    resumed = launches[1]["resumes"]
    log = (run / "jobs" / "small.train.2" / "log.txt").read_text(encoding="utf-8")
    assert f"resumes from step {resumed['step']}, saved by attempt 1 ({resumed['digest']})" in log
    print(f"{house.name}: went on from step {resumed['step']}")


def killed_after_a_step(run: Path) -> None:
    """Kill the wrapper of the training as soon as a step of it is saved."""
    folder, until_then = run / "jobs" / "small.train.1", time.monotonic() + 300
    while not (folder / "trainer" / "checkpoint-3" / "whole.json").exists():
        if time.monotonic() > until_then:
            return
        time.sleep(0.002)
    kill(json.loads((folder / "heartbeat.json").read_bytes())["wrapper"])


# ---- the cluster ------------------------------------------------------------------------------------------------


@in_houses(RAY)
def test_a_cluster_that_is_away_pauses_the_session_and_it_goes_on_when_it_is_back(
    tmp_path: Path, house: FaultHouse
) -> None:
    assert house.jobs is not None
    run = house.open(tmp_path)
    with pytest.raises(Stopped):
        house.go_on(run, Stopping(house.launcher(), "sample"))
    before = keys(run)
    gone = EngineLauncher(RayEngine(lambda start: Cluster("http://127.0.0.1:9")), python=house.jobs.python)
    with pytest.raises(EngineUnavailable, match="does not answer") as caught:
        house.go_on(run, gone)
    assert caught.value.exit_code == ExitCode.BLOCKED
    assert keys(run) == before
    house.go_on(run)
    check_finished(run, before)
    assert effects(tmp_path) == jobs_that_ended_well(run)


class Gone(Through):
    """The cluster is killed, with all that it has started, while a job of it runs."""

    def __init__(self, inner: Launcher, run: Path, job: str) -> None:
        super().__init__(inner)
        self.run, self.job, self.was = run, job, ""

    def start(self, folder: Path) -> None:
        if folder.name == self.job:
            (folder / "program.py").write_text(SLEEP, encoding="utf-8")
        super().start(folder)

    def poll(self, folder: Path) -> JobState:
        if folder.name == self.job and not self.was and (folder / "began").exists():
            report = json.loads((self.run / "ray.json").read_bytes())
            self.was = report["folder"]
            kill(int(report["pid"]))
            end_left_over(self.run)
        return super().poll(folder)


@in_houses(RAY)
def test_a_cluster_that_is_killed_under_a_job_loses_the_job_and_nothing_else(tmp_path: Path, house: FaultHouse) -> None:
    assert house.jobs is not None
    run = house.open(tmp_path)
    python = house.jobs.python

    def launcher() -> Launcher:
        return EngineLauncher(RayEngine(SessionCluster(run)), python=python, patience=IMPATIENT, ask_every_s=0.2)

    # Held for the whole test: a session's own cluster ends when no one is there.
    with present(run):
        killing = Gone(launcher(), run, "small.sample.1")
        try:
            house.go_on(run, killing)
            entries = read_entries(run / "trail.sqlite")
            assert killing.was and is_waiting(History(entries))
            assert [entry.raw["key"] for entry in entries if entry.kind == "lost"] == ["small.sample.1"]
            before = keys(run)
            house.go_on(run, launcher(), RETRY)
            check_finished(run, before)
            assert effects(tmp_path) == jobs_that_ended_well(run)
            report = json.loads((run / "ray.json").read_bytes())
            assert report["folder"] != killing.was and not Path(killing.was).exists()
        finally:
            if (run / "ray.json").exists():
                keeper = int(json.loads((run / "ray.json").read_bytes())["pid"])
                if not is_gone(keeper):
                    os.kill(keeper, signal.SIGTERM)
                    until(lambda: is_gone(keeper))
                end_left_over(run)
