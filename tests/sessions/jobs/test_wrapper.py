"""The wrapper and the local launcher with real processes: what is left when something is killed, hangs or races."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from sessions.jobs import machine_capacity
from sessions.jobs.job_environment import job_environment
from sessions.jobs.launcher import JobState, submit
from sessions.jobs.local_launcher import CLAIM_GRACE_S, LocalLauncher
from specs.jobs.job_records import ExitRecord, JobOrder
from specs.system.digests import digest_bytes, digest_file
from specs.system.reporting import REPORTING_OFF
from testing.factories.sessions_on_disk import first_order, open_session

pytestmark = pytest.mark.integration

DRIVER = Path(__file__).parents[3] / "testing" / "fixtures" / "wrapper_driver.py"
SLEEP = "import time; time.sleep(60)"
DEAF = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
Path(sys.argv[1], "deaf").touch()
time.sleep(60)
"""
PARENT = """
import subprocess, sys, time
from pathlib import Path
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
Path(sys.argv[1], "pid.part").write_text(str(child.pid))
Path(sys.argv[1], "pid.part").rename(Path(sys.argv[1], "pid"))
"""


@pytest.fixture(scope="module")
def order(tmp_path_factory: pytest.TempPathFactory) -> JobOrder:
    return first_order(tmp_path_factory.mktemp("session") / "run")


@pytest.fixture
def folder(tmp_path: Path, order: JobOrder) -> Path:
    return job(tmp_path / "jobs" / order.key, order)


@pytest.fixture
def drivers() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Drivers a test started; none outlives it."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for driver in started:
        driver.kill()
        driver.wait()


@pytest.fixture
def drive(drivers: list[subprocess.Popen[bytes]]) -> Callable[..., subprocess.Popen[bytes]]:
    """Return a function that starts the wrapper on folders with a program in place of the stage."""

    def start(program: str, *folders: Path) -> subprocess.Popen[bytes]:
        driver = subprocess.Popen(
            [sys.executable, str(DRIVER), program, *map(str, folders)], cwd=folders[0], start_new_session=True
        )
        drivers.append(driver)
        return driver

    return start


Drive = Callable[..., subprocess.Popen[bytes]]


def job(folder: Path, order: JobOrder, max_seconds: float = 60.0) -> Path:
    folder.mkdir(parents=True)
    (folder / "order.json").write_bytes(order.model_copy(update={"max_seconds": max_seconds}).canonical())
    return folder


def wait_for(what: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    # An orphan no one waits for stays behind as a zombie: that is gone too.
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def child_of(folder: Path) -> int:
    """Return the pid of the stage as soon as it runs."""
    wait_for((folder / "heartbeat.json").exists)
    return int(json.loads((folder / "heartbeat.json").read_bytes())["child"])


def exit_of(folder: Path) -> ExitRecord:
    state = LocalLauncher().poll(folder)
    assert state.state == "exited"
    assert state.exit is not None
    return state.exit


def ended(driver: subprocess.Popen[bytes], folder: Path) -> tuple[str, int]:
    """Wait for the driver and return how the exit record says the stage ended."""
    assert driver.wait(300) == 0
    record = exit_of(folder)
    return record.reason, record.code


# ---- how a stage ends ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_record_says_how_the_stage_ended(drive: Drive, folder: Path, order: JobOrder, code: int) -> None:
    before = time.time()
    program = f"import os, sys; print('out'); print('err', file=sys.stderr); print(os.getcwd()); sys.exit({code})"
    assert ended(drive(program, folder), folder) == ("exited", code)
    record = exit_of(folder)
    assert (record.key, record.host) == (order.key, platform.node())
    assert before - 0.01 <= record.started <= record.ended <= time.time() + 0.01
    assert sorted((folder / "log.txt").read_text().splitlines()) == sorted(["out", "err", str(folder)])
    assert record.log == digest_file(folder / "log.txt")
    assert (folder / "exit.json").read_bytes() == record.canonical()


def test_a_stage_that_takes_too_long_is_ended(drive: Drive, tmp_path: Path, order: JobOrder) -> None:
    folder = job(tmp_path / "slow", order, max_seconds=0.3)
    assert ended(drive(SLEEP, folder), folder) == ("timeout", -signal.SIGTERM)
    record = exit_of(folder)
    assert 0.3 <= record.ended - record.started < 5


def test_a_stage_that_does_not_listen_is_killed(drive: Drive, folder: Path) -> None:
    driver = drive(DEAF, folder)
    wait_for((folder / "deaf").exists)
    LocalLauncher().cancel(folder, "enough")
    assert ended(driver, folder) == ("cancelled", -signal.SIGKILL)


def test_a_cancelled_job_is_ended_and_says_so(drive: Drive, folder: Path) -> None:
    driver = drive(SLEEP, folder)
    child = child_of(folder)
    launcher = LocalLauncher()
    assert launcher.poll(folder) == JobState("running")
    launcher.cancel(folder, "the session was cancelled")
    launcher.cancel(folder, "the session was cancelled")
    assert ended(driver, folder) == ("cancelled", -signal.SIGTERM)
    assert is_gone(child)
    assert (folder / "cancel").read_text() == "the session was cancelled"


def test_a_job_cancelled_before_it_began_does_not_run_on(drive: Drive, folder: Path) -> None:
    LocalLauncher().cancel(folder, "never mind")
    driver = drive(SLEEP, folder)
    assert ended(driver, folder) == ("cancelled", -signal.SIGTERM)


def test_a_wrapper_that_is_asked_to_end_ends_its_stage_first(drive: Drive, folder: Path) -> None:
    driver = drive(SLEEP, folder)
    child = child_of(folder)
    driver.send_signal(signal.SIGTERM)
    assert ended(driver, folder) == ("cancelled", -signal.SIGTERM)
    assert is_gone(child)


def test_a_stage_that_is_killed_leaves_a_record_with_the_signal(drive: Drive, folder: Path) -> None:
    driver = drive(SLEEP, folder)
    os.kill(child_of(folder), signal.SIGKILL)
    assert ended(driver, folder) == ("signal", -signal.SIGKILL)


TOO_LATE = """
import os, signal
guard = os.getppid()
state = lambda: open(f"/proc/{guard}/stat").read().rpartition(")")[2].split()
wrapper = int(state()[1])
if os.fork():
    os._exit(0)
# Until the guard has ended as its stage did and the wrapper has not noticed: it looks every few milliseconds.
while state()[0] != "Z":
    pass
os.kill(wrapper, signal.SIGTERM)
"""


def test_a_request_that_comes_too_late_does_not_change_how_the_stage_ended(drive: Drive, folder: Path) -> None:
    assert ended(drive(TOO_LATE, folder), folder) == ("exited", 0)


def test_a_killed_wrapper_takes_its_stage_with_it_and_the_job_is_lost(drive: Drive, folder: Path) -> None:
    driver = drive(SLEEP, folder)
    child = child_of(folder)
    launcher = LocalLauncher()
    assert launcher.poll(folder) == JobState("running")
    driver.kill()
    wait_for(lambda: is_gone(child))
    # Before anybody has waited for it the wrapper is a zombie, afterwards nothing.
    wait_for(lambda: launcher.poll(folder) == JobState("lost"))
    driver.wait()
    assert launcher.poll(folder) == JobState("lost")
    assert not (folder / "exit.json").exists()
    # Lost stays lost: a start does not run it a second time.
    launcher.start(folder)
    assert launcher.poll(folder) == JobState("lost")
    assert not (folder / "wrapper.log").exists()


@pytest.mark.parametrize("then", ["time.sleep(60)", ""])
def test_what_the_stage_started_ends_with_it(drive: Drive, folder: Path, then: str) -> None:
    driver = drive(f"{PARENT}{then}", folder)
    wait_for((folder / "pid").exists)
    grandchild = int((folder / "pid").read_text())
    if then:
        assert not is_gone(grandchild)
        LocalLauncher().cancel(folder, "enough")
    reason, _ = ended(driver, folder)
    assert reason == ("cancelled" if then else "exited")
    wait_for(lambda: is_gone(grandchild))


def test_the_heartbeat_goes_on_while_the_stage_runs(drive: Drive, folder: Path) -> None:
    driver = drive(SLEEP, folder)
    child = child_of(folder)

    def beat() -> dict[str, float]:
        return json.loads((folder / "heartbeat.json").read_bytes())

    first = beat()
    assert (first["wrapper"], psutil.Process(child).ppid()) == (driver.pid, driver.pid)
    wait_for(lambda: beat()["time"] > first["time"])
    assert abs(beat()["time"] - time.time()) < 5


def test_a_heartbeat_that_cannot_be_written_does_not_end_the_job(drive: Drive, folder: Path) -> None:
    (folder / "heartbeat.json").mkdir()
    assert ended(drive("import time; time.sleep(0.3)", folder), folder) == ("exited", 0)


# ---- once and only once -------------------------------------------------------------------------------------


def test_of_two_wrappers_on_one_folder_exactly_one_runs_the_stage(
    drive: Drive, tmp_path: Path, order: JobOrder
) -> None:
    folders = [job(tmp_path / str(n), order) for n in range(10)]
    for folder in folders:
        (folder / "hold").touch()
    program = "import os, sys; os.write(os.open(sys.argv[1] + '/ran', os.O_WRONLY | os.O_CREAT | os.O_APPEND), b'x')"
    pair = [drive(program, *folders), drive(program, *folders)]
    for folder in folders:
        wait_for(lambda folder=folder: len(list(folder.glob("waiting.*"))) == 2)
        (folder / "hold").unlink()
    for driver in pair:
        assert driver.wait(300) == 0
    for folder in folders:
        assert (folder / "ran").read_bytes() == b"x"
        assert exit_of(folder).code == 0
        owner = json.loads((folder / "claim" / "claim.json").read_bytes())
        assert owner["pid"] in [driver.pid for driver in pair]


def test_a_second_wrapper_leaves_a_running_job_alone(drive: Drive, folder: Path) -> None:
    first = drive(SLEEP, folder)
    child = child_of(folder)
    claim = (folder / "claim" / "claim.json").read_bytes()
    second = drive("raise SystemExit(9)", folder)
    assert second.wait(300) == 0
    assert (folder / "claim" / "claim.json").read_bytes() == claim
    assert LocalLauncher().poll(folder) == JobState("running")
    assert not is_gone(child)
    assert first.poll() is None


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"key":"small.base.1"}'])
def test_a_folder_without_a_readable_order_is_not_claimed(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "order.json").write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "sessions.jobs.wrapper", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4
    assert "no readable order.json" in done.stderr
    assert not (tmp_path / "claim").exists()


# ---- the launcher -------------------------------------------------------------------------------------------


def test_a_launched_job_runs_its_stage_once_and_the_stage_refuses_what_was_not_granted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With GPUs no host forks the wrapper.
    monkeypatch.setattr(machine_capacity, "gpus", lambda: 1)
    others = set(psutil.Process().children())
    session = open_session(tmp_path / "run")
    session.decide(None, 1, "approve")
    order = session.order(session.mint())
    launcher = LocalLauncher()
    submit(launcher, session.trail, session.run, order, session.registration)
    # Edited between the launcher's look and the stage's own.
    (session.run / "model.bin").write_bytes(b"other weights")
    folder = session.run / "jobs" / order.key
    launcher.start(folder)
    wrappers = set(psutil.Process().children()) - others
    wait_for(lambda: launcher.poll(folder).state == "exited", 300)
    record = exit_of(folder)
    assert (record.key, record.reason) == (order.key, "exited")
    assert record.code != 0
    assert (folder / "log.txt").read_text().count("refused: small.base.1: input 'model' is") == 1
    psutil.wait_procs(wrappers, timeout=120)
    # Once claimed nothing is started any more, so the record of the first run stays.
    submitted = (folder / "exit.json").read_bytes()
    launcher.start(folder)
    assert (folder / "exit.json").read_bytes() == submitted
    assert launcher.poll(folder) == JobState("exited", record)
    assert set(psutil.Process().children()) <= others, "wrappers that ended were not collected"
    session.trail.close()


def test_a_job_gets_only_the_variables_that_are_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "ANTHROPIC_API_KEY",
        "OPENAI_API_KEY",
        "HF_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "PYTHONPATH",
        "LD_PRELOAD",
    ):
        monkeypatch.setenv(name, "canary")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    interpreter = tmp_path / "python"
    # What the launcher starts in place of the wrapper: it shows its arguments, environment and session id.
    interpreter.write_text(
        '#!/bin/sh\ncat /proc/$$/environ > environ\ncat /proc/$$/stat > stat\necho "$@" > arguments\n'
    )
    interpreter.chmod(0o755)
    monkeypatch.setattr("sessions.jobs.local_launcher.sys.executable", str(interpreter))
    # With GPUs no host forks the wrapper.
    monkeypatch.setattr(machine_capacity, "gpus", lambda: 1)
    launcher, others = LocalLauncher(), set(psutil.Process().children())
    launcher.start(folder)
    wait_for(lambda: (folder / "arguments").exists() and (folder / "arguments").read_text().endswith("\n"))
    # Looking at the job also collects what has ended.
    wait_for(lambda: launcher.poll(folder).state == "pending" and set(psutil.Process().children()) <= others)
    assert (folder / "arguments").read_text() == f"-P -m sessions.jobs.wrapper {folder}\n"

    arguments = dict(entry.split("=", 1) for entry in (folder / "environ").read_text().split("\0") if entry)
    assert arguments == job_environment()
    assert "canary" not in arguments.values()
    assert (arguments["OMP_NUM_THREADS"], arguments["HF_HUB_OFFLINE"], arguments["PATH"]) == (
        "2",
        "1",
        os.environ["PATH"],
    )
    pid, *rest = (folder / "stat").read_text().split(") ")
    assert rest[0].split()[3] == pid.split()[0], "the wrapper does not lead a session of its own"


def test_the_environment_of_a_job_is_the_named_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if not name.startswith("PYTEST"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SOME_API_KEY", "canary")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("PATH", "/bin")
    assert job_environment() == REPORTING_OFF | {
        "PATH": "/bin",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
    }


def claimed(folder: Path, content: object) -> None:
    (folder / "claim").mkdir()
    (folder / "claim" / "claim.json").write_text(json.dumps(content))


def test_a_job_no_one_has_claimed_is_pending(folder: Path) -> None:
    assert LocalLauncher().poll(folder) == JobState("pending")
    assert LocalLauncher().poll(folder / "nowhere") == JobState("pending")


def test_a_pid_that_was_given_to_another_process_is_not_the_wrapper(
    folder: Path, tmp_path: Path, order: JobOrder
) -> None:
    started = psutil.Process().create_time()
    claimed(folder, {"key": order.key, "pid": os.getpid(), "started": started})
    assert LocalLauncher().poll(folder) == JobState("running")
    for n, other in enumerate((started - 100, started + 100)):
        reused = job(tmp_path / str(n), order)
        claimed(reused, {"key": order.key, "pid": os.getpid(), "started": other})
        assert LocalLauncher().poll(reused) == JobState("lost")


@pytest.mark.parametrize("content", [[], {}, {"pid": "x", "started": 1.0}, {"pid": -1, "started": 1.0}])
def test_a_claim_that_says_nothing_useful_is_waited_for_and_then_lost(folder: Path, content: object) -> None:
    claimed(folder, content)
    assert LocalLauncher().poll(folder) == JobState("running")
    old = time.time() - CLAIM_GRACE_S - 1
    os.utime(folder / "claim", (old, old))
    assert LocalLauncher().poll(folder) == JobState("lost")


def test_a_claim_folder_without_its_file_is_waited_for_and_then_lost(folder: Path) -> None:
    (folder / "claim").mkdir()
    assert LocalLauncher().poll(folder) == JobState("running")
    old = time.time() - CLAIM_GRACE_S - 1
    os.utime(folder / "claim", (old, old))
    assert LocalLauncher().poll(folder) == JobState("lost")


def test_the_exit_record_counts_more_than_who_is_alive(folder: Path, order: JobOrder) -> None:
    claimed(folder, {"key": order.key, "pid": os.getpid(), "started": psutil.Process().create_time()})
    record = ExitRecord(
        key=order.key, code=0, reason="exited", started=1.0, ended=2.0, host="here", log=digest_bytes(b"")
    )
    (folder / "exit.json").write_bytes(record.canonical())
    assert LocalLauncher().poll(folder) == JobState("exited", record)
