"""One owner a session, in a run folder and in Postgres: refused, followed, taken over and kept out; real processes."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from reviews.audit.verify import verify_run
from reviews.trail.tables.open_table import read_entries
from reviews.trail.trail import Trail
from sessions.nodes import act
from sessions.pages.report.live_display import Terminal
from sessions.pages.report.session_list import INDEX
from sessions.run import lease as leases
from sessions.run import lease_record
from sessions.run.lease import is_running, lease, records_of, take_up
from sessions.run.lease_record import NAME, LeaseRecord
from sessions.runtime import runtime
from specs.system.errors import LeaseHeld, LeaseLost
from testing.fixtures.command_sessions import called
from testing.fixtures.quick_session import Silent, open_quick, quick_session

pytestmark = pytest.mark.integration

HOME = Path(__file__).parents[3]
BEAT_S, LEASE_S = 0.1, 1.0
OWNER = """
import sys, time
from pathlib import Path
from typing import Any
from sessions.runtime import runtime
from sessions.pages.report import plots
from sessions.run import lease, lease_record
from testing.fixtures.quick_session import QuickLauncher, Silent, quick_session
from testing.fixtures.reviewer_here import key_here
from reviews.trail.chain import keys

run, lease_record.LEASE_S, lease.BEAT_EVERY_S = Path(sys.argv[1]), float(sys.argv[2]), 0.1
keys.key_apart, plots.draw = key_here, lambda *_: []

class Slow(QuickLauncher):
    def start(self, folder):
        with (run / "started").open("a") as file:
            file.write(folder.name + "\\n")
        super().start(folder)

    def poll(self, folder):
        state = super().poll(folder)
        return state if (run / "go").exists() else type(state)("running")

runtime.make_session = lambda run, display, resolved=None: quick_session(run, launcher=Slow(), display=display)
display = Silent()
try:
    runtime.resume(run, display)
finally:
    print("\\n".join(display.lines))
"""


@pytest.fixture(params=["file", pytest.param("postgres", marks=pytest.mark.slow)])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A registered session, in a run folder or in Postgres."""
    if request.param == "postgres":
        request.getfixturevalue("database")
    return open_quick(tmp_path)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_record, "LEASE_S", LEASE_S)
    monkeypatch.setattr(leases, "BEAT_EVERY_S", BEAT_S)


def owner(run: Path, lease_s: float = LEASE_S) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OWNER, str(run), str(lease_s)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=HOME,
    )  # fmt: skip


def wait_for(what: Callable[[], bool], seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def at_work(run: Path) -> bool:
    return any(entry.kind == "launch" for entry in read_entries(run / "trail.sqlite"))


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    message = process.communicate(timeout=120)[0]
    return process.returncode, message


@pytest.mark.slow
def test_an_owner_that_hangs_is_taken_over_and_does_nothing_when_it_wakes(run: Path) -> None:
    first = owner(run)
    try:
        wait_for(lambda: at_work(run))
        with pytest.raises(LeaseHeld, match=rf"process {first.pid} on .*, last sign of life \d s ago") as refused:
            runtime.resume(run, cast(Terminal, Silent()))
        assert "`peergate resume` takes over" in str(refused.value) and is_running(run)
        first.send_signal(signal.SIGSTOP)
        time.sleep(1.5 * LEASE_S)
        (run / "go").touch()
        code, message = end(owner(run))
        assert code == 0, message
        assert f"taken over from process {first.pid}" in message
        before = read_entries(run / "trail.sqlite")
        report = (run / "report" / "report.json").read_bytes()
    finally:
        first.send_signal(signal.SIGCONT)
    code, message = end(first)
    assert code == 1 and "LeaseLost" in message and "the session was taken over by" in message, message
    after = read_entries(run / "trail.sqlite")
    assert [entry.digest for entry in after] == [entry.digest for entry in before] and after[-1].kind == "close"
    assert (run / "report" / "report.json").read_bytes() == report
    result = next(entry.raw["lease"] for entry in after if entry.key == "resume/2")
    assert result["over"]["pid"] == first.pid and result["over"]["silent_s"] >= LEASE_S and result["epoch"] == 3
    assert set(Counter((run / "started").read_text().splitlines()).values()) == {1}
    assert verify_run(run, "trail.sqlite", "store").exit_code == 0


@pytest.mark.slow
def test_an_owner_that_was_killed_is_followed_at_once(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    first = owner(run, lease_s=600)
    wait_for(lambda: at_work(run))
    first.kill()
    first.communicate()
    (run / "go").touch()
    assert not is_running(run)
    code, message = end(owner(run, lease_s=600))
    assert code == 0 and "taken over" not in message
    resumed = [entry.raw["lease"] for entry in read_entries(run / "trail.sqlite") if entry.kind == "resume"]
    assert [item["epoch"] for item in resumed] == [2, 3]
    assert [item["over"] for item in resumed] == [None, None]


def record(run: Path, **changes: Any) -> LeaseRecord:
    """Leave the record of an owner on another machine."""
    own = {"number": 7, "by": "eve", "host": "elsewhere", "pid": 5, "started": 1.0, "since": 2.0} | changes
    records = records_of(run)
    result = LeaseRecord.model_validate(own)
    assert records.replace(records.read(), result)
    records.close()
    return result


def test_an_owner_on_another_machine_keeps_it_as_long_as_it_shows_signs_of_life(run: Path) -> None:
    result = record(run)
    records = records_of(run)
    with pytest.raises(LeaseHeld, match="eve, process 5 on elsewhere"), lease(run):
        pass
    stop = threading.Event()

    def beats() -> None:
        while not stop.wait(BEAT_S):
            assert records.beat(result)

    thread = threading.Thread(target=beats)
    thread.start()
    try:
        time.sleep(1.2 * LEASE_S)
        with pytest.raises(LeaseHeld), lease(run):
            pass
        assert is_running(run)
    finally:
        stop.set()
        thread.join()
    time.sleep(1.2 * LEASE_S)
    with lease(run) as owned_lease:
        assert owned_lease.record.number == 8 and owned_lease.over is not None and owned_lease.over.host == "elsewhere"
        assert not records.beat(result), "who was taken over still shows signs of life"
    with lease(run) as again:
        assert again.over is None and again.record.number == 9
    records.close()


def test_a_clock_that_was_set_does_not_take_a_session_from_its_owner(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    with lease(run):
        # As if hours had passed since: the owner goes on to touch it.
        os.utime(run / NAME, (1, 1))
        time.sleep(0.01)
        with pytest.raises(LeaseHeld), lease(run, wait_s=0):
            pass


def test_of_two_who_take_over_at_once_one_does(run: Path) -> None:
    record(run)
    time.sleep(1.2 * LEASE_S)
    won: list[int] = []
    lost: list[str] = []
    begin, done = threading.Barrier(2), threading.Barrier(2)

    def takes() -> None:
        begin.wait()
        try:
            with lease(run) as owned_lease:
                won.append(owned_lease.record.number)
                done.wait()
        except LeaseHeld as error:
            lost.append(str(error))
            done.wait()

    threads = [threading.Thread(target=takes) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [8] and len(lost) == 1


def test_who_lost_the_lease_before_it_took_the_session_up_is_refused(run: Path) -> None:
    session = quick_session(run)
    lost = threading.Event()
    with lease(run) as owned_lease:
        # Before the loss: the first beat after it is the only one that calls.
        owned_lease.on_loss = lost.set
        other = records_of(run)
        assert other.replace(owned_lease.record, owned_lease.record.model_copy(update={"number": 9, "pid": 1}))
        other.close()
        with pytest.raises(LeaseLost, match="nothing was recorded"):
            take_up(session.trail, owned_lease)
        assert not list(session.trail.iterate("resume"))
        wait_for(lost.is_set, 60)
    session.trail.close()


def test_who_was_taken_over_writes_no_report(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    session = quick_session(run)
    session.trail.fence = session.trail.epoch()
    other = Trail(run / "trail.sqlite", "small")
    with lease(run) as owned_lease:
        take_up(other, owned_lease)
        with pytest.raises(LeaseLost):
            act.close_with(session, "cancelled")
    assert not (run / "report").exists()
    other.close()
    session.trail.close()


def test_a_lost_record_begins_again_above_what_the_trail_says(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    trail = Trail(run / "trail.sqlite", "small")
    for expected in (2, 3):
        with lease(run) as owned_lease:
            take_up(trail, owned_lease)
            assert trail.fence == trail.epoch() == expected
        (run / NAME).unlink()
    (run / NAME).write_text("{", encoding="utf-8")
    with lease(run) as owned_lease:
        take_up(trail, owned_lease)
        assert trail.epoch() == 4 and owned_lease.record.number == 1
    trail.close()


@pytest.mark.parametrize("lock", ["{outside}", "../../outside", "store/outside", "outside", ".", "lease.1.lock\n"])
def test_reading_a_strangers_record_makes_no_file_that_it_names(tmp_path: Path, lock: str) -> None:
    run = open_quick(tmp_path)
    record(run)
    changed = json.loads((run / NAME).read_bytes()) | {"lock": lock.format(outside=tmp_path / "outside")}
    (run / NAME).write_text(json.dumps(changed), encoding="utf-8")
    before = set(tmp_path.rglob("*"))
    for command in (("status", run), ("list", "--runs", run.parent)):
        assert called(*command).returncode == 0
    made = set(tmp_path.rglob("*")) - before
    assert made == {run.parent / INDEX}


def test_a_process_of_this_machine_that_is_gone_owns_nothing(run: Path) -> None:
    # Its number was given to another process since.
    record(run, host=platform.node(), pid=os.getpid(), started=1.0)
    with lease(run) as owned_lease:
        assert owned_lease.over is None


def test_who_takes_a_closed_look_changes_nothing(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    assert not is_running(run) and not (run / NAME).exists()
    with lease(run):
        assert is_running(run)
        assert json.loads((run / NAME).read_bytes())["released"] is False
    assert not is_running(run) and json.loads((run / NAME).read_bytes())["released"] is True


def test_readers_do_not_take_one_another_for_the_owner(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    with ThreadPoolExecutor(8) as threads:
        with lease(run):
            assert set(threads.map(is_running, [run] * 400)) == {True}
        assert set(threads.map(is_running, [run] * 400)) == {False}
