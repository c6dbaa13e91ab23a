"""Faults around a job: endless output, full disks, half-written files, a clock that is set, processes left behind."""

from __future__ import annotations

import errno
import gc
import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from sessions.jobs import orphans, wrapper
from sessions.jobs.job_log import JobLog
from sessions.jobs.launcher import JobState
from sessions.jobs.local_launcher import LocalLauncher
from sessions.run import claim
from specs.jobs.job_records import ExitRecord, JobOrder
from specs.system.digests import digest_file
from testing.factories.sessions_on_disk import first_order
from tests.sessions.jobs.test_wrapper import SLEEP, child_of, ended, exit_of, is_gone, job, wait_for

pytestmark = pytest.mark.integration

DRIVER = Path(__file__).parents[2] / "testing" / "fixtures" / "wrapper_driver.py"
FULL_AT_FIRST = """
import errno, sys
from pathlib import Path
from sessions.jobs import wrapper
from testing.fixtures import wrapper_driver

real, failed = wrapper.write_durably, []

def full(path, data):
    if path.name == "exit.json" and len(failed) < 3:
        failed.append(path)
        raise OSError(errno.ENOSPC, "No space left on device")
    real(path, data)

wrapper.write_durably = full
raise SystemExit(wrapper_driver.main())
"""
# The wrapper's own log is on the disk that is full, or on the one of Ray's logs.
NOWHERE_TO_SAY = """
import os
for number in (1, 2):
    os.dup2(os.open("/dev/full", os.O_WRONLY), number)
"""
DIES_BEFORE_THE_NAME = """
import os, signal, sys
from pathlib import Path
from sessions.jobs import job_state, wrapper

def dies(path, data):
    path.parent.mkdir()
    path.write_bytes(data[:10])
    os.kill(os.getpid(), signal.SIGKILL)

job_state.write_durably = dies
wrapper.main()
"""
# A process that left group and session, holds the pipe and goes on, whether or not someone reads.
RUNAWAY = """
import os, sys, time
from pathlib import Path
if os.fork() == 0:
    os.setsid()
    Path(sys.argv[1], "pid.part").write_text(str(os.getpid()))
    Path(sys.argv[1], "pid.part").rename(Path(sys.argv[1], "pid"))
    while True:
        time.sleep(0.01)
        try:
            print("still here", flush=True)
        except OSError:
            pass
while not Path(sys.argv[1], "pid").exists():
    time.sleep(0.01)
"""
GREEDY = """
import subprocess, sys, time
hold = "x = b'x' * (80 << 20); import time; time.sleep(0.5)"
both = [subprocess.Popen([sys.executable, "-c", hold]) for _ in range(2)]
end = time.process_time() + 0.3
while time.process_time() < end:
    pass
for one in both:
    one.wait()
"""

Drive = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture(scope="module")
def order(tmp_path_factory: pytest.TempPathFactory) -> JobOrder:
    return first_order(tmp_path_factory.mktemp("session") / "run")


@pytest.fixture
def folder(tmp_path: Path, order: JobOrder) -> Path:
    return job(tmp_path / "jobs" / order.key, order)


@pytest.fixture
def drive() -> Iterator[Drive]:
    """Return a function that starts the wrapper with a program in place of the stage; none outlives the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(program: str, folder: Path, *code: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, *(code or (str(DRIVER),)), program, str(folder)]
        driver = subprocess.Popen(command, cwd=folder, env=os.environ | {"PYTHONPATH": str(DRIVER.parents[2])})
        started.append(driver)
        return driver

    yield start
    for driver in started:
        driver.kill()
        driver.wait()


# ---- the log ------------------------------------------------------------------------------------------------


def log_of(path: Path, data: bytes, head: int, tail: int) -> tuple[bytes, int, str]:
    """Send bytes through a pipe into a log; return what the file holds, what was left out, and the digest."""
    reading, writing = os.pipe()
    log = JobLog(path, reading, head, tail)
    log.start()
    for start in range(0, len(data), 1000):
        os.write(writing, data[start : start + 1000])
    os.close(writing)
    digest = log.finish()
    return path.read_bytes(), log.left_out, digest


@pytest.mark.parametrize("lines", [0, 10, 300, 5_000])
def test_a_log_keeps_its_beginning_and_its_end(tmp_path: Path, lines: int) -> None:
    data = b"".join(b"line %d\n" % n for n in range(lines))
    content, left_out, digest = log_of(tmp_path / "log.txt", data, head=1000, tail=4000)
    assert digest == digest_file(tmp_path / "log.txt")
    assert len(content) <= 1000 + 8000 + 100
    assert os.listdir(tmp_path) == ["log.txt"]  # noqa: PTH208
    if len(data) <= 9000:
        assert (content, left_out) == (data, 0)
        return
    begin, payload, end = content.partition(f"\n[peergate: {left_out} bytes of the log were left out here]\n".encode())
    assert payload, content[900:1200]
    assert begin == data[:1000] and data.endswith(end) and len(end) > 3900
    assert len(begin) + left_out + len(end) == len(data)
    assert end.startswith(b"line "), "the end begins in the middle of a line"


def test_a_log_on_a_full_disk_counts_what_it_could_not_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = os.pwrite, 0

    def full(file: int, data: bytes, place: int) -> int:
        nonlocal calls
        calls += 1
        if calls in (2, 3):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data, place)

    monkeypatch.setattr("sessions.jobs.job_log.os.pwrite", full)
    monkeypatch.setattr("sessions.jobs.job_log.PIECE_BYTES", 1000)
    data = b"".join(b"%06d\n" % n for n in range(1000))
    content, left_out, digest = log_of(tmp_path / "log.txt", data, head=10_000, tail=10_000)
    assert left_out == 2000 and len(content) == len(data) - 2000
    assert digest == digest_file(tmp_path / "log.txt")


def test_a_job_that_prints_without_end_does_not_fill_the_disk(drive: Drive, folder: Path) -> None:
    line = "a line that is printed often {n + m}"
    program = f"for n in range(0, 400_000, 1000): print('\\n'.join(f'{line}' for m in range(1000)))"
    assert ended(drive(program, folder), folder) == ("exited", 0)
    record, log = exit_of(folder), folder / "log.txt"
    assert log.stat().st_size < 10 << 20
    assert record.log == digest_file(log)
    text = log.read_text(encoding="utf-8")
    assert f"[peergate: {record.log_left_out} bytes of the log were left out here]" in text
    assert record.log_left_out > 2 << 20
    assert text.startswith("a line that is printed often 0\n") and text.endswith(" 399999\n")


def test_a_log_is_not_written_through_a_link_of_the_job(drive: Drive, folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    for name in ("log.txt", ".log.txt"):
        (folder / name).symlink_to(outside)
    assert ended(drive("print('x' * 12_000_000)", folder), folder) == ("exited", 0)
    assert outside.read_bytes() == b"mine" and not (folder / "log.txt").is_symlink()


# ---- how it ends --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_every_signal_that_asks_the_wrapper_to_end_ends_the_stage_first(
    drive: Drive, folder: Path, number: signal.Signals
) -> None:
    driver = drive(SLEEP, folder)
    child = child_of(folder)
    driver.send_signal(number)
    assert ended(driver, folder) == ("cancelled", -signal.SIGTERM)
    assert is_gone(child)


def test_the_exit_record_says_what_the_job_used(drive: Drive, folder: Path) -> None:
    assert ended(drive(GREEDY, folder), folder) == ("exited", 0)
    record = exit_of(folder)
    assert record.cpu_s is not None and 0.3 <= record.cpu_s < 60
    # Two processes of 80 MiB at the same time: the larger one alone is not what the job held.
    assert record.peak_rss_mb is not None and 160 <= record.peak_rss_mb < 600
    older = record.model_dump(mode="json", exclude={"cpu_s", "peak_rss_mb"})
    assert ExitRecord.model_validate(older).content_digest() != record.content_digest()
    assert json.loads((folder / "exit.json").read_bytes())["log_left_out"] == 0


@pytest.mark.parametrize("message", ["", NOWHERE_TO_SAY], ids=["log", "full-log"])
def test_an_exit_record_waits_for_room_on_the_disk(drive: Drive, folder: Path, message: str) -> None:
    # Its own exit code is 120 where Python cannot flush what it wrote to the full log.
    drive("raise SystemExit(3)", folder, "-c", message + FULL_AT_FIRST).wait(300)
    record = exit_of(folder)
    assert (record.reason, record.code) == ("exited", 3)
    assert [path.name for path in folder.glob(".*")] == [], "something half-written is left"


def test_a_process_that_left_the_group_neither_holds_the_job_up_nor_outlives_it(drive: Drive, folder: Path) -> None:
    assert ended(drive(RUNAWAY, folder), folder) == ("exited", 0)
    assert is_gone(int((folder / "pid").read_text()))


BARE = """
import os, subprocess, sys, time
from pathlib import Path
path = Path(sys.argv[1], "pid")
code = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(300)"
start = "import sys, subprocess as s; s.Popen([sys.executable, '-c', *sys.argv[1:]], start_new_session=True, env={})"
subprocess.run([sys.executable, "-c", start, code, str(path)], env={}, check=True)
while not path.exists() or not path.read_text():
    time.sleep(0.01)
"""
"""Leaves a process with an empty environment, in a session of its own."""


def test_a_process_with_an_empty_environment_ends_with_its_job(drive: Drive, folder: Path) -> None:
    assert ended(drive(BARE, folder), folder) == ("exited", 0)
    assert is_gone(int((folder / "pid").read_text()))


@pytest.mark.parametrize("victim", ["wrapper", "guard"])
def test_a_process_with_an_empty_environment_ends_with_its_killed_wrapper(
    drive: Drive, folder: Path, victim: str
) -> None:
    """The guard ends what a killed wrapper left; the wrapper ends what a killed guard left."""
    driver = drive(f"{BARE}\nopen(sys.argv[1] + '/parent', 'w').write(str(os.getpid()))\ntime.sleep(300)", folder)
    wait_for((folder / "parent").exists)
    stray = int((folder / "pid").read_text())
    guard = child_of(folder)
    assert not is_gone(stray) and psutil.Process(stray).environ() == {}
    if victim == "wrapper":
        driver.kill()
        driver.wait()
        wait_for(lambda: LocalLauncher().poll(folder) == JobState("lost"))
    else:
        os.kill(guard, signal.SIGKILL)
        assert ended(driver, folder) == ("signal", -signal.SIGKILL)
    wait_for(lambda: is_gone(stray) and is_gone(guard))
    wait_for(lambda: is_gone(int((folder / "parent").read_text() or 0)))


def test_the_exit_of_a_stage_is_its_own_behind_the_guard(drive: Drive, tmp_path: Path, order: JobOrder) -> None:
    programs = {"raise SystemExit(3)": ("exited", 3)}
    programs |= {
        f"import os; os.kill(os.getpid(), {number:d})": ("signal", -number)
        for number in (signal.SIGSEGV, signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1, signal.SIGABRT)
    }
    for place, (program, expected) in enumerate(programs.items()):
        folder = job(tmp_path / str(place) / order.key, order)
        assert ended(drive(program, folder), folder) == expected, program


def test_what_a_lost_job_left_behind_is_ended_and_nothing_else(drive: Drive, folder: Path, tmp_path: Path) -> None:
    driver = drive(f"{RUNAWAY}\nimport time; time.sleep(60)", folder)
    wait_for((folder / "pid").exists)
    runaway = int((folder / "pid").read_text())
    other = subprocess.Popen([sys.executable, "-c", SLEEP], env=os.environ | {orphans.VARIABLE: f"{folder.resolve()}0"})
    try:
        # A guard that ends with the wrapper ends nothing.
        driver.send_signal(signal.SIGSTOP)
        os.kill(child_of(folder), signal.SIGKILL)
        driver.kill()
        driver.wait()
        wait_for(lambda: LocalLauncher().poll(folder) == JobState("lost"))
        assert not is_gone(runaway), "the kernel ended it too: nothing to test here"
        # The stage itself may still be on its way out.
        assert orphans.end_left_behind(folder) in (1, 2)
        assert is_gone(runaway) and orphans.left_behind(folder) == []
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


# ---- whose claim it is --------------------------------------------------------------------------------------


def test_a_claim_is_there_with_its_content_or_not_at_all(folder: Path, order: JobOrder) -> None:
    done = subprocess.run([sys.executable, "-c", DIES_BEFORE_THE_NAME, str(folder)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not (folder / "claim").exists()
    assert LocalLauncher().poll(folder) == JobState("pending")
    # No one has claimed, so the next one may.
    assert wrapper.claim(folder, order.key)
    assert json.loads((folder / "claim" / "claim.json").read_bytes())["pid"] == os.getpid()
    assert not wrapper.claim(folder, order.key)
    assert LocalLauncher().poll(folder) == JobState("running")


def test_a_claim_on_a_full_disk_is_no_claim(folder: Path, order: JobOrder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("sessions.jobs.job_state.write_durably", full)
    with pytest.raises(OSError, match="No space left"):
        wrapper.claim(folder, order.key)
    assert [path.name for path in folder.iterdir()] == ["order.json"]


@pytest.mark.parametrize("hours", [-30, 30])
def test_a_wrapper_lives_on_when_the_clock_is_set(
    folder: Path, order: JobOrder, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    assert wrapper.claim(folder, order.key)
    at = psutil.boot_time()
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: at + hours * 3600)
    report = json.loads((folder / "claim" / "claim.json").read_bytes())
    assert abs(psutil.Process(report["pid"]).create_time() - report["started"]) > 3600, "the clock was not set"
    assert LocalLauncher().poll(folder) == JobState("running")


@pytest.mark.parametrize("changed", [{"ticks": 1}, {"boot": "another boot"}, {"ticks": None}])
def test_a_process_that_was_given_the_same_id_is_not_the_wrapper(
    folder: Path, order: JobOrder, changed: dict[str, object]
) -> None:
    assert wrapper.claim(folder, order.key)
    path = folder / "claim" / "claim.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | changed))
    assert LocalLauncher().poll(folder) == JobState("lost")


def test_a_process_whose_name_looks_like_numbers_is_read_right() -> None:
    name = "a) 1 2 3 (b"
    program = "import ctypes, sys, time; ctypes.CDLL(None).prctl(15, sys.argv[1].encode()); print('x'); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-uc", program, name], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        ticks = claim.started_ticks(process.pid)
        own = claim.started_ticks(os.getpid())
        process.kill()
    assert ticks is not None and own is not None and ticks >= own


@pytest.mark.parametrize("written", [b"", b"{", b'{"key":"small.base.1","code":0}', b"null", b"\xff"])
def test_half_an_exit_record_is_none(folder: Path, order: JobOrder, written: bytes) -> None:
    assert wrapper.claim(folder, order.key)
    (folder / "exit.json").write_bytes(written)
    assert LocalLauncher().poll(folder) == JobState("running")
    path = folder / "claim" / "claim.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"ticks": 1}))
    assert LocalLauncher().poll(folder) == JobState("lost")


def test_a_detached_process_is_held_until_it_ends(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        process = orphans.start_detached([sys.executable, "-c", SLEEP], tmp_path / "log", tmp_path, dict(os.environ))
        number = process.pid
        del process
        gc.collect()
        assert not caught, "a dropped process warns, and is not collected"
    os.kill(number, signal.SIGKILL)
    wait_for(lambda: is_gone(number))
    orphans.start_detached(["true"], tmp_path / "log", tmp_path, dict(os.environ))
    assert not psutil.pid_exists(number), "the next one collects those that have ended"
