"""Jobs that a host forks are as those of fresh processes, whoever is killed; what a fork cannot do a fresh one does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sessions.jobs import job_host, local_launcher, machine_capacity, orphans
from sessions.jobs.job_environment import job_environment
from sessions.jobs.job_host import JobHost, host_for
from sessions.jobs.local_launcher import LocalLauncher
from specs.jobs.job_records import JobOrder
from specs.system.home import HOME
from testing.factories.sessions_on_disk import first_order
from tests.sessions.jobs.test_wrapper import exit_of, is_gone, job, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="a host forks on Linux only")]

DRIVER = "testing.fixtures.host_driver"
OWNER = """
import sys, time
from sessions.jobs import job_host
job_host.MODULE = sys.argv[1]
host = job_host.JobHost(sys.executable, dict(zip(sys.argv[2::2], sys.argv[3::2])))
print(host.process.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def order(tmp_path_factory: pytest.TempPathFactory) -> JobOrder:
    return first_order(tmp_path_factory.mktemp("session") / "run")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return job_environment() | {"PYTHONPATH": f"{HOME}:{tmp_path / 'early'}"}


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hosts here fork probes; none outlives its test."""
    monkeypatch.setattr(job_host, "MODULE", DRIVER)
    monkeypatch.setattr(job_host, "running_hosts", list[JobHost]())
    yield
    for host in job_host.running_hosts:
        end(host)


@pytest.fixture
def host(environment: dict[str, str]) -> Iterator[JobHost]:
    host = JobHost(sys.executable, environment)
    yield host
    end(host)


@pytest.fixture
def folder(tmp_path: Path, order: JobOrder) -> Path:
    return job(tmp_path / "jobs" / order.key, order)


def end(host: JobHost) -> None:
    host.close()
    wait_for(host.has_ended)


def words(folder: Path) -> list[str]:
    return [sys.executable, "-P", "-m", DRIVER, "fresh", str(folder)]


def probe(folder: Path) -> dict[str, Any]:
    """Return what a stage wrote, once it has."""
    wait_for((folder / "probe.json").exists)
    return json.loads((folder / "probe.json").read_text(encoding="utf-8").replace(str(folder), "FOLDER"))


def owner_of(folder: Path) -> int:
    return json.loads((folder / "claim" / "claim.json").read_bytes())["pid"]


def ended(folder: Path) -> tuple[str, int]:
    wait_for((folder / "exit.json").exists)
    record = exit_of(folder)
    return record.reason, record.code


def fork_waiting_job(host: JobHost, folder: Path) -> dict[str, Any]:
    """Have a job forked that waits for its file ``hold`` to go."""
    (folder / "hold").touch()
    assert host.fork(words(folder))
    return probe(folder)


def test_a_forked_job_is_as_a_fresh_one(
    host: JobHost, environment: dict[str, str], tmp_path: Path, order: JobOrder
) -> None:
    folders = [job(tmp_path / str(number) / "jobs" / order.key, order) for number in range(3)]
    for folder in folders[:2]:
        assert host.fork(words(folder))
    subprocess.run(words(folders[2]), cwd=folders[2], env=environment, check=True, start_new_session=True)
    *forked, fresh = map(probe, folders)
    assert [report["forked"] for report in (*forked, fresh)] == [True, True, False]
    for name, value in fresh["seen"].items():
        assert [report["seen"][name] for report in forked] == [value, value], name
    assert fresh["seen"]["files"].keys() == {"0", "1", "2"}
    assert (
        fresh["seen"]["variables"]["PEERGATE_JOB"] == "FOLDER" and fresh["seen"]["variables"]["PYTHONHASHSEED"] == "0"
    )
    drawn = [number for report in (*forked, fresh) for number in report["drawn"]]
    assert len({*drawn}) == len(drawn), "two jobs draw the same"
    assert [ended(folder) for folder in folders] == [("exited", 0)] * 3
    assert {(folder / "log.txt").read_text() for folder in folders} == {"written\n"}
    names = [{path.name for path in folder.iterdir()} for folder in folders]
    assert names[0] == names[1] == names[2] | {"wrapper.log"}
    # The end of a job is not the end of its host.
    assert not host.has_ended()


@pytest.mark.parametrize("code", ["3", "failed"])
def test_the_exit_record_of_a_forked_job_says_how_its_stage_ended(host: JobHost, folder: Path, code: str) -> None:
    (folder / "code").write_text(code)
    assert host.fork(words(folder))
    assert ended(folder) == ("exited", 1)
    assert (folder / "log.txt").read_text() == f"written\n{code}\n"


def test_a_forked_job_is_cancelled(host: JobHost, folder: Path) -> None:
    fork_waiting_job(host, folder)
    LocalLauncher().cancel(folder, "enough")
    assert ended(folder) == ("cancelled", -signal.SIGTERM)


def test_a_job_outlives_the_host_and_its_owner(environment: dict[str, str], folder: Path) -> None:
    variables = [text for pair in environment.items() for text in pair]
    with subprocess.Popen([sys.executable, "-c", OWNER, DRIVER, *variables], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        host = int(owner.stdout.readline())
        (folder / "hold").touch()
        # Asked for through the owner's own end of the pipe.
        pipe = next(path for path in Path(f"/proc/{owner.pid}/fd").iterdir() if is_pipe_of(path, host))
        pipe.write_text(json.dumps(words(folder)) + "\n")
        assert probe(folder)["forked"]
        owner.kill()
        wait_for(lambda: is_gone(host))
    assert LocalLauncher().poll(folder).state == "running"
    (folder / "hold").unlink()
    assert ended(folder) == ("exited", 0)


def is_pipe_of(path: Path, host: int) -> bool:
    return path.readlink() == Path(f"/proc/{host}/fd/0").readlink()


def test_a_job_outlives_a_killed_host(host: JobHost, folder: Path) -> None:
    fork_waiting_job(host, folder)
    wrapper = owner_of(folder)
    assert psutil.Process(wrapper).ppid() == host.process.pid
    host.process.kill()
    wait_for(host.has_ended)
    assert not host.fork(words(folder))
    assert LocalLauncher().poll(folder).state == "running"
    (folder / "hold").unlink()
    assert ended(folder) == ("exited", 0)


@pytest.mark.parametrize("with_guard", [False, True])
def test_nothing_of_a_forked_job_outlives_its_wrapper(host: JobHost, folder: Path, with_guard: bool) -> None:
    """Without a guard they are known by a variable that the kernel shows: a fork has that of the host at first."""
    (folder / "leave").touch()
    fork_waiting_job(host, folder)
    wrapper = psutil.Process(owner_of(folder))
    below = [process.pid for process in wrapper.children(recursive=True)]
    assert len(below) == 4, "a guard, a stage, and two that it started"
    assert {process.pid for process in orphans.left_behind(folder)} == {*below[1:]}
    if not with_guard:
        os.kill(below[0], signal.SIGSTOP)
    wrapper.kill()
    if not with_guard:
        os.kill(below[0], signal.SIGKILL)
        wait_for(lambda: LocalLauncher().poll(folder).state == "lost" and is_gone(below[1]))
        assert orphans.end_left_behind(folder) == 2
    wait_for(lambda: all(map(is_gone, below)))
    assert LocalLauncher().poll(folder).state == "lost"


def test_a_killed_stage_ends_with_its_signal(host: JobHost, folder: Path) -> None:
    fork_waiting_job(host, folder)
    psutil.Process(owner_of(folder)).children(recursive=True)[1].kill()
    assert ended(folder) == ("signal", -signal.SIGKILL)


@pytest.mark.parametrize("change", ["changed", "gone", "linked"])
def test_a_job_runs_the_code_on_disk(
    tmp_path: Path, environment: dict[str, str], folder: Path, order: JobOrder, change: str
) -> None:
    module = tmp_path / "early" / "imported_early.py"
    module.parent.mkdir()
    module.write_text("")
    time.sleep(0.05)
    host = JobHost(sys.executable, environment)
    assert host.fork(words(folder)) and probe(folder)["forked"]
    if change == "gone":
        module.unlink()
    elif change == "changed":
        module.write_text("other = 1")
    else:
        # An installer's further name of the same file.
        (tmp_path / "linked.py").hardlink_to(module)
    second = job(tmp_path / "second" / "jobs" / order.key, order)
    assert host.fork(words(second))
    assert probe(second)["forked"] is (change == "linked") and ended(second) == ("exited", 0)
    end(host)


THREAD = "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"


@pytest.mark.parametrize("early", [THREAD, "import os; os.open('/dev/null', os.O_RDONLY)", "", "changed"])
def test_a_host_whose_forks_would_differ_forks_nothing(
    tmp_path: Path, environment: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch, early: str
) -> None:
    (tmp_path / "early").mkdir()
    (tmp_path / "early" / "imported_early.py").write_text("" if early == "changed" else early)
    time.sleep(0.05)
    if early == "changed":
        # The host was started before the files that it imports were there.
        monkeypatch.setattr(time, "time_ns", lambda: 0)
    host = JobHost(sys.executable, environment)
    assert host.fork(words(folder)) and probe(folder)["forked"] is (early == "")
    assert ended(folder) == ("exited", 0)
    end(host)


def test_each_environment_has_its_own_host(
    order: JobOrder, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_capacity, "gpus", lambda: 0)
    first = host_for(order, sys.executable, environment)
    assert first is not None and host_for(order, sys.executable, environment) is first
    other = host_for(order, sys.executable, environment | {"PYTHONHASHSEED": "1"})
    assert other is not None and other is not first
    wait_for(first.has_ended)
    other.process.kill()
    wait_for(other.has_ended)
    assert host_for(order, sys.executable, other.environment) is None
    assert host_for(order.model_copy(update={"kind": "recipe"}), sys.executable, environment) is None
    monkeypatch.setattr(machine_capacity, "gpus", lambda: 1)
    assert host_for(order, sys.executable, environment) is None
    assert job_host.running_hosts == [other]


@pytest.mark.parametrize("ends", ["well", "at once", "never"])
def test_a_launched_job_begins_with_a_host_or_without(
    folder: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    started: list[list[str]] = []
    real: Callable[..., Any] = orphans.start_detached

    def environment_of(_: object) -> dict[str, str]:
        return environment

    def start(argv: list[str], *rest: Any, **more: Any) -> Any:
        started.append(argv)
        return real([*argv[:3], DRIVER, "fresh", argv[-1]], *rest, **more)

    monkeypatch.setattr(local_launcher, "start_detached", start)
    monkeypatch.setattr(local_launcher, "job_environment", environment_of)
    monkeypatch.setattr(machine_capacity, "gpus", lambda: 0)
    if ends == "at once":
        monkeypatch.setattr(job_host, "MODULE", "testing.fixtures.no_host")
    launcher = LocalLauncher()
    launcher.start(folder)
    host = job_host.running_hosts[0].process
    if ends == "never":
        host.send_signal(signal.SIGSTOP)
        monkeypatch.setattr(local_launcher, "HOST_S", 0.5)
    wait_for(lambda: launcher.poll(folder).state == "exited")
    assert probe(folder)["forked"] is (ends == "well")
    assert len(started) == (0 if ends == "well" else 1)
    assert ended(folder) == ("exited", 0)
    # What it is asked for, it finds claimed.
    host.send_signal(signal.SIGCONT)
