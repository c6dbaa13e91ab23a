"""The contract of launchers, the same tests on each of them: this machine's processes, an engine of processes, Ray.

On Ray they are `nightly`: a cluster takes seconds to start, and each job one or two.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sessions.jobs import engine_launcher
from sessions.jobs.engine_launcher import EngineLauncher, EngineStatus, EngineUnavailable
from sessions.jobs.job_state import withdraw
from sessions.jobs.launcher import JobState
from specs.jobs.job_records import JobOrder
from specs.system.digests import digest_file
from specs.system.resources import Resources
from testing.factories.sessions_on_disk import first_order
from testing.fixtures import ray_cluster
from testing.fixtures.houses import IMPATIENT, House, ended, is_gone, kill, running, settled, until
from testing.fixtures.job_python import WITHOUT_CLAIM
from testing.fixtures.process_engine import ProcessEngine

ONCE = """
import os, sys
os.write(os.open(sys.argv[1] + '/ran', os.O_WRONLY | os.O_CREAT | os.O_APPEND), b'x')
open(sys.argv[1] + '/began', 'w').close()
print('first', flush=True); print('second')
"""
SLEEP = f"{ONCE}\nimport time; time.sleep(60)"
THREE = f"{ONCE}\nimport time; time.sleep(1); sys.exit(3)"


@pytest.fixture(scope="module")
def order(tmp_path_factory: pytest.TempPathFactory) -> JobOrder:
    return first_order(tmp_path_factory.mktemp("session") / "run")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    if missing := ray_cluster.missing():
        pytest.skip(missing)
    with ray_cluster.running(tmp_path_factory.mktemp("cluster")) as result:
        assert result.token is not None
        yield result.address, result.token


KINDS = [pytest.param("local"), pytest.param("processes"), pytest.param("ray", marks=[pytest.mark.nightly])]


@pytest.fixture(params=KINDS)
def house(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    # Put back afterwards: the local launcher starts its wrappers with this interpreter.
    monkeypatch.setattr(sys, "executable", sys.executable)
    kind: str = request.param
    result = request.getfixturevalue("cluster") if kind == "ray" else None
    made = House(kind, tmp_path, result)
    yield made
    made.close()


def processes(house: House) -> ProcessEngine:
    engine = house.engine()
    assert isinstance(engine, ProcessEngine)
    return engine


engine_houses = pytest.mark.parametrize("house", KINDS[1:], indirect=True)
planted = pytest.mark.parametrize("house", ["processes"], indirect=True)
# What is said of every launcher and has no part of an engine in it: in every run, with the launcher of this machine.
local_first = pytest.mark.parametrize(
    "house", ["local", pytest.param("processes", marks=pytest.mark.slow), KINDS[2]], indirect=True
)


# ---- once, and found again ------------------------------------------------------------------------------------


def a_second_submit_runs_nothing(house: House, order: JobOrder, program: str = ONCE) -> None:
    folder = house.job(order, program)
    first, second = house.launcher(), house.launcher()
    first.start(folder)
    first.start(folder)
    second.start(folder)
    if house.kind == "processes":
        # An engine that forgets starts it anew; then only the claim is left.
        processes(house).forget()
        house.launcher().start(folder)
    record = ended(first, folder)
    assert (record.code, record.reason) == (0, "exited")
    second.start(folder)
    house.launcher().start(folder)
    assert settled(second, folder) == JobState("exited", record)
    house.wait()
    assert (folder / "ran").read_bytes() == b"x"


@local_first
def test_a_second_submit_runs_nothing(house: House, order: JobOrder) -> None:
    a_second_submit_runs_nothing(house, order)


def test_a_job_is_found_after_a_restart(house: House, order: JobOrder) -> None:
    folder = house.job(order, THREE)
    house.launcher().start(folder)
    running(house.launcher(), folder)
    # Another watcher, which did not start it, and then another one.
    assert house.launcher().poll(folder).state == "running"
    record = ended(house.launcher(), folder)
    assert (record.code, record.reason) == (3, "exited")
    assert record.log == digest_file(folder / "log.txt")


@local_first
def test_a_job_outlives_its_orchestrator(house: House, order: JobOrder) -> None:
    folder = house.job(order, THREE)
    orchestrator = house.orchestrator(folder)
    try:
        running(house.launcher(), folder)
    finally:
        orchestrator.kill()
        orchestrator.wait()
    launcher = house.launcher()
    launcher.start(folder)
    assert ended(launcher, folder).code == 3
    assert (folder / "ran").read_bytes() == b"x"


# ---- kills ----------------------------------------------------------------------------------------------------


@local_first
def test_a_killed_stage_leaves_a_record_with_the_signal(house: House, order: JobOrder) -> None:
    folder = house.job(order, SLEEP)
    launcher = house.launcher()
    launcher.start(folder)
    kill(running(launcher, folder)["stage"])
    record = ended(launcher, folder)
    assert (record.code, record.reason) == (-signal.SIGKILL, "signal")


def test_a_killed_wrapper_is_a_lost_job_and_never_a_failed_one(house: House, order: JobOrder) -> None:
    folder = house.job(order, SLEEP)
    launcher = house.launcher()
    launcher.start(folder)
    pids = running(launcher, folder)
    kill(pids["wrapper"])
    assert settled(launcher, folder) == JobState("lost")
    until(lambda: is_gone(pids["stage"]))
    # It stays so, for everybody, and nothing runs it again.
    launcher.start(folder)
    assert settled(house.launcher(), folder) == JobState("lost")
    assert not (folder / "exit.json").exists()
    assert (folder / "ran").read_bytes() == b"x"


# ---- cancel and logs ------------------------------------------------------------------------------------------


def test_a_cancelled_job_ends_with_a_record(house: House, order: JobOrder) -> None:
    folder = house.job(order, SLEEP)
    launcher = house.launcher()
    launcher.start(folder)
    pids = running(launcher, folder)
    launcher.cancel(folder, "the session was cancelled")
    launcher.cancel(folder, "the session was cancelled")
    record = ended(launcher, folder)
    assert (record.code, record.reason) == (-signal.SIGTERM, "cancelled")
    until(lambda: is_gone(pids["stage"]))
    assert (folder / "cancel").read_text() == "the session was cancelled"


@local_first
def test_the_log_can_be_read_while_the_job_runs(house: House, order: JobOrder) -> None:
    folder = house.job(order, SLEEP)
    launcher, log = house.launcher(), folder / "log.txt"
    launcher.start(folder)
    running(launcher, folder)
    until(lambda: launcher.poll(folder).state == "running" and log.exists() and b"first\n" in log.read_bytes())
    launcher.cancel(folder, "enough")
    ended(launcher, folder)
    assert log.read_bytes().startswith(b"first\n")


# ---- an engine and what it says -------------------------------------------------------------------------------


@engine_houses
def test_the_engine_keeps_one_command_a_key(house: House) -> None:
    engine, again = house.engine(), house.engine()
    marks = house.folder / "marks"
    code = f"import sys, time; open({str(marks)!r}, 'a').write('x'); print('said'); time.sleep(1.5); sys.exit(7)"
    argv = [sys.executable, "-c", code]
    key = f"contract.{house.folder.name}.1"
    assert engine.find(key) is None
    handle = engine.submit(key, argv, Resources())
    assert engine.submit(key, argv, Resources()) == handle
    assert again.submit(key, argv, Resources()) == handle
    assert again.find(key) == handle and again.find(f"{key}x") is None
    # On a machine that does other work it may have ended before it is looked at.
    until(lambda: engine.poll(handle).state in ("running", "exited"))
    until(lambda: engine.poll(handle).state == "exited")
    assert marks.read_text() == "x"
    assert engine.logs(handle).endswith(b"said\n")
    engine.cancel(handle)


@engine_houses
def test_a_command_is_cancelled_by_its_engine(house: House) -> None:
    engine = house.engine()
    key = f"contract.{house.folder.name}.2"
    handle = engine.submit(key, [sys.executable, "-c", "import time; time.sleep(60)"], Resources())
    until(lambda: engine.poll(handle).state == "running")
    house.engine().cancel(handle)
    until(lambda: engine.poll(handle).state in ("exited", "lost"))


def what_an_engine_says_of_a_living_job_is_a_hint(
    house: House, order: JobOrder, make: Callable[[ProcessEngine], EngineLauncher]
) -> None:
    folder = house.job(order, THREE)
    engine = processes(house)
    launcher = make(engine)
    launcher.start(folder)
    running(launcher, folder)
    engine.says = EngineStatus("exited")
    assert make(engine).poll(folder).state == "running"
    # It says that it has ended well. It has not, and it does not.
    record = ended(make(engine), folder)
    assert (record.code, record.reason) == (3, "exited")


def impatient(house: House) -> Callable[[ProcessEngine], EngineLauncher]:
    return lambda engine: EngineLauncher(engine, python=house.python, patience=IMPATIENT, ask_every_s=0.2)


@planted
def test_what_an_engine_says_of_a_living_job_is_a_hint(house: House, order: JobOrder) -> None:
    what_an_engine_says_of_a_living_job_is_a_hint(house, order, impatient(house))


def done_without_a_record_is_lost(
    house: House, order: JobOrder, make: Callable[[ProcessEngine], EngineLauncher]
) -> None:
    folder = house.job(order, ONCE)
    engine = processes(house)
    engine.queue = True
    launcher = make(engine)
    launcher.start(folder)
    assert launcher.poll(folder) == JobState("pending")
    engine.says = EngineStatus("exited")
    assert settled(make(engine), folder) == JobState("lost")
    # Should the engine start it after all: it finds its claim taken.
    done = subprocess.run([house.python, "-P", "-m", "sessions.jobs.transfer.remote_entry", str(folder)], check=False)
    assert done.returncode == 0 and not (folder / "ran").exists() and not (folder / "log.txt").exists()


@planted
def test_done_without_a_record_is_lost(house: House, order: JobOrder) -> None:
    done_without_a_record_is_lost(house, order, impatient(house))


@engine_houses
def test_a_job_that_ends_before_its_claim_is_lost_and_its_words_are_kept(house: House, order: JobOrder) -> None:
    folder = house.job(order, ONCE)
    launcher = house.launcher()
    assert isinstance(launcher, EngineLauncher)
    broken = house.folder / "broken"
    broken.write_text("#!/bin/sh\necho no such environment >&2\nexit 1\n", encoding="utf-8")
    broken.chmod(0o755)
    EngineLauncher(launcher.engine, python=str(broken), patience=IMPATIENT, ask_every_s=0.2).start(folder)
    assert settled(launcher, folder) == JobState("lost")
    assert "no such environment" in (folder / "wrapper.log").read_text()


@planted
def test_a_job_goes_on_while_its_engine_cannot_be_reached(house: House, order: JobOrder) -> None:
    folder = house.job(order, f"{ONCE}\nimport time; time.sleep(2.5)")
    engine = processes(house)
    launcher = impatient(house)(engine)
    launcher.start(folder)
    running(launcher, folder)
    engine.is_reachable = False
    until(lambda: launcher.poll(folder).state != "running")
    assert ended(launcher, folder).code == 0
    with pytest.raises(EngineUnavailable):
        launcher.start(house.job(order, ONCE, 2))


@planted
def test_an_engine_that_was_restarted_and_forgot_loses_no_living_job(house: House, order: JobOrder) -> None:
    folder = house.job(order, f"{ONCE}\nimport time; time.sleep(2.5)")
    engine = processes(house)
    launcher = impatient(house)(engine)
    launcher.start(folder)
    running(launcher, folder)
    engine.forget()
    assert ended(launcher, folder).code == 0
    assert (folder / "ran").read_bytes() == b"x"


@planted
def test_a_job_still_in_the_queue_is_withdrawn_when_it_is_cancelled(house: House, order: JobOrder) -> None:
    folder = house.job(order, ONCE)
    engine = processes(house)
    engine.queue = True
    launcher = impatient(house)(engine)
    launcher.start(folder)
    launcher.cancel(folder, "enough")
    assert launcher.poll(folder) == JobState("lost")
    assert house.launcher().poll(folder) == JobState("lost")


def waiting(order: JobOrder, **requests: Any) -> JobOrder:
    return order.model_copy(update={"grant": order.grant.model_copy(update={"resources": Resources(**requests)})})


@planted
@pytest.mark.parametrize(
    "engine_says", [*(pytest.param(name, marks=pytest.mark.slow) for name in ("pending", "unreachable")), "unknown"]
)
def test_a_job_that_never_begins_is_lost_after_as_long_as_it_may_wait(
    house: House, order: JobOrder, engine_says: str
) -> None:
    folder = house.job(waiting(order, max_wait_hours=2 / 3600), ONCE)
    engine = processes(house)
    engine.queue = True
    launcher = impatient(house)(engine)
    launcher.start(folder)
    assert "it is given up if it does not begin within 0.000555556 h" in launcher.poll(folder).message
    if engine_says == "unknown":
        engine.forget()
    engine.is_reachable = engine_says != "unreachable"
    state = settled(launcher, folder, 20)
    assert state == JobState("lost")
    report = {"pending": "processes says 'pending'", "unknown": "has nothing for it", "unreachable": "cannot be asked"}
    assert state.message.startswith("not begun in 0.0") and report[engine_says] in state.message
    # Taken from the queue where there is one, and it never begins.
    assert len(engine.cancelled) == (engine_says == "pending")
    done = subprocess.run([house.python, "-P", "-m", "sessions.jobs.transfer.remote_entry", str(folder)], check=False)
    assert done.returncode == 0 and not (folder / "ran").exists()
    again = house.launcher().poll(folder)
    assert (again.state, again.message) == ("lost", state.message)


@planted
def test_a_machine_that_is_paid_for_begins_in_its_hours_or_is_ended(house: House, order: JobOrder) -> None:
    engine = processes(house)
    engine.queue = True
    folder = house.job(waiting(order, max_hours=1 / 3600), ONCE)
    engine.submit(engine_launcher.key_of(folder), [], Resources())
    until_then = impatient(house)(engine)
    assert [until_then.poll(folder).state for _ in range(2)] == ["pending", "pending"]
    time.sleep(1.2)
    # No one pays for a place in a queue.
    assert until_then.poll(folder).state == "pending" and not engine.cancelled
    engine.rents = True
    state = settled(until_then, folder, 20)
    assert state == JobState("lost") and state.message.startswith("its machine has not begun it in 0.0")
    assert len(engine.cancelled) == 1


@planted
def test_a_machine_is_ended_though_who_gave_its_job_up_was_killed_before_that(house: House, order: JobOrder) -> None:
    folder = house.job(order, ONCE)
    engine = processes(house)
    engine.queue = True
    impatient(house)(engine).start(folder)
    withdraw(folder, folder.name, "it never begins")
    state = impatient(house)(engine).poll(folder)
    assert (state.state, state.message) == ("lost", "it never begins") and len(engine.cancelled) == 1


@planted
def test_a_job_that_holds_its_machine_for_too_long_is_asked_to_end_and_then_lost(
    house: House, order: JobOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_launcher, "END_S", 2.0)
    engine = processes(house)
    launcher = impatient(house)(engine)
    ends = house.job(waiting(order, max_hours=2 / 3600), SLEEP)
    launcher.start(ends)
    running(launcher, ends)
    assert ended(launcher, ends).reason == "cancelled"
    assert (ends / "cancel").read_text().startswith("max_hours: its machine was held for")
    # One that is asked and does not end, as when what it leaves is on its way for hours.
    stays = house.job(waiting(order, max_hours=2 / 3600), SLEEP, 2)
    launcher.start(stays)
    stopped = running(launcher, stays)["wrapper"]
    os.kill(stopped, signal.SIGSTOP)
    state = settled(launcher, stays, 20)
    assert state == JobState("lost") and "max_hours" in state.message and len(engine.cancelled) == 1
    os.kill(stopped, signal.SIGCONT)


@pytest.mark.parametrize("house", ["local"], indirect=True)
def test_a_wrapper_that_never_claims_is_lost_here_too(
    house: House, order: JobOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = house.job(order, ONCE)
    launcher = house.launcher()
    broken = house.folder / "broken"
    broken.write_text("#!/bin/sh\necho no such environment >&2\nexit 1\n", encoding="utf-8")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    launcher.start(folder)
    until(lambda: "no such environment" in launcher.poll(folder).message)
    monkeypatch.setattr("sessions.jobs.local_launcher.START_S", 1.0)
    state = settled(launcher, folder, 20)
    assert state == JobState("lost") and state.message.endswith("its wrapper said: no such environment")
    monkeypatch.setattr(sys, "executable", house.python)
    launcher.start(folder)
    assert house.launcher().poll(folder) == state and not (folder / "ran").exists()


@planted
def test_a_job_is_ended_though_what_it_printed_cannot_be_had(
    house: House, order: JobOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = house.job(waiting(order, max_wait_hours=0.5 / 3600), ONCE)
    engine = processes(house)
    engine.queue = True

    def refused(handle: str) -> bytes:
        raise EngineUnavailable("no UTF-8", where=handle)

    monkeypatch.setattr(engine, "logs", refused)
    launcher = impatient(house)(engine)
    launcher.start(folder)
    state = settled(launcher, folder, 20)
    assert state == JobState("lost") and len(engine.cancelled) == 1


@planted
def test_a_lost_job_that_lives_after_all_is_ordered_to_end(house: House, order: JobOrder) -> None:
    folder = house.job(order, SLEEP)
    engine = processes(house)
    launcher = impatient(house)(engine)
    launcher.start(folder)
    pids = running(launcher, folder)
    engine.is_reachable = False
    os.kill(pids["wrapper"], signal.SIGSTOP)
    assert settled(launcher, folder) == JobState("lost")
    os.kill(pids["wrapper"], signal.SIGCONT)
    until(lambda: is_gone(pids["stage"]))


@planted
def test_a_job_is_lost_though_its_engine_goes_on_saying_that_it_runs(house: House, order: JobOrder) -> None:
    folder = house.job(order, SLEEP)
    engine = processes(house)
    launcher = EngineLauncher(engine, python=house.python, patience={**IMPATIENT, "running": 1.0}, ask_every_s=0.2)
    launcher.start(folder)
    kill(running(launcher, folder)["wrapper"])
    engine.says = EngineStatus("running")
    assert settled(launcher, folder) == JobState("lost")


@planted
def test_a_job_gets_no_variable_of_its_engine(house: House, order: JobOrder) -> None:
    folder = house.job(order, f"{ONCE}\nprint(dict(os.environ))")
    launcher = house.launcher()
    launcher.start(folder)
    assert ended(launcher, folder).code == 0
    log = (folder / "log.txt").read_text()
    assert "canary" not in log and "PYTHONHASHSEED" in log


# ---- what the suite must not let pass -------------------------------------------------------------------------


@pytest.mark.parametrize("house", ["local", pytest.param("processes", marks=pytest.mark.slow)], indirect=True)
def test_the_suite_finds_a_launcher_without_the_claim(house: House, order: JobOrder) -> None:
    house.extra = WITHOUT_CLAIM
    # The wrapper that ends first ends the other's stage as something left behind: maybe before it has done a thing.
    wait = f"{ONCE}\nimport time\nfor _ in range(500): time.sleep(0.02 * (os.path.getsize(sys.argv[1] + '/ran') < 2))"
    with pytest.raises(AssertionError):
        a_second_submit_runs_nothing(house, order, wait)


class Believing(EngineLauncher):
    """Takes the engine's word for how a job is."""

    def poll(self, folder: Path) -> JobState:
        hint, _ = self._hint(folder)
        state = super().poll(folder)
        return JobState("exited", state.exit) if hint == "exited" else state


@planted
def test_the_suite_finds_a_launcher_that_believes_its_engine(house: House, order: JobOrder) -> None:
    def make(engine: ProcessEngine) -> EngineLauncher:
        return Believing(engine, python=house.python, patience=IMPATIENT, ask_every_s=0.2)

    with pytest.raises(AssertionError):
        what_an_engine_says_of_a_living_job_is_a_hint(house, order, make)
    (house.folder / "engine").rename(house.folder / "before")
    (house.folder / "run").rename(house.folder / "run-before")
    with pytest.raises(AssertionError):
        done_without_a_record_is_lost(house, order, make)


def test_the_hints_that_end_nothing_are_patient() -> None:
    assert (
        engine_launcher.PATIENCE_S["running"]
        > engine_launcher.PATIENCE_S["unreachable"]
        > engine_launcher.PATIENCE_S["exited"]
    )
