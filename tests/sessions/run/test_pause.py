"""`peergate pause` and `cancel` on a session that runs, waits, or does not run at all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agents.workbench_protocol import Workbench
from reviews.trail.tables.open_table import read_entries
from sessions.commands import run as command
from sessions.pages.overview import overview
from sessions.run import pause as pausing
from sessions.run.lease import lease
from sessions.runtime import runtime
from sessions.session import PauseSignal
from testing.factories.benches import call, take, turn
from testing.fixtures.quick_session import Silent, drive, open_quick, quick_session


class Waiting:
    """A builder whose model is away until something stops the session."""

    name = "waiting"

    def __init__(self, at_work: Callable[[Any, threading.Event], None]) -> None:
        self.at_work = at_work
        self.begun = threading.Event()

    def work(self, bench: Workbench) -> None:
        self.at_work(bench, self.begun)


def for_an_api(bench: Workbench, begun: threading.Event) -> None:
    begun.set()
    bench.wait(60, "status 529")


def for_a_job(bench: Any, begun: threading.Event) -> None:
    begun.set()
    if bench.phase == "plan":
        call(bench, "launch_stage", stage=bench.view.stage, reason="r")
    call(bench, "job_status", wait_seconds=60)


def for_an_answer(bench: Any, begun: threading.Event) -> None:
    """A model that answers after a while: what it says is paid for, so it is waited for and kept."""
    reservation = bench.reserve(0.02)
    # Only now: a session that is asked before it has reserved pauses without the answer.
    begun.set()
    time.sleep(1.5)
    bench.record(turn(text="an answer"), reservation, b"{}", b"{}")
    take(bench, turn())


class RunningJob:
    state = "running"
    exit = None


def running(run: Path, at_work: Callable[[Any, threading.Event], None], ended: list[BaseException]) -> threading.Thread:
    """Drive a session in a thread of its own, as another process would."""
    builder = Waiting(at_work)

    def go() -> None:
        session = quick_session(run, builder)  # pyright: ignore[reportArgumentType]
        if at_work is for_a_job:
            session.launcher.poll = lambda _: RunningJob()  # type: ignore[method-assign]
        try:
            drive(session)
        except PauseSignal as paused:
            ended.append(paused)

    thread = threading.Thread(target=go)
    thread.start()
    assert builder.begun.wait(300)
    return thread


@pytest.fixture(autouse=True)
def no_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals belong to the main thread."""

    def nothing(*_: Any) -> None:
        """Leave the signal as it is."""

    monkeypatch.setattr(runtime.signal, "signal", nothing)


@pytest.mark.parametrize("at_work", [for_an_api, for_a_job, for_an_answer])
def test_a_running_session_pauses_wherever_its_builder_waits(
    tmp_path: Path,
    at_work: Callable[[Any, threading.Event], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = open_quick(tmp_path)
    monkeypatch.setattr(pausing.getpass, "getuser", lambda: "anyone who asked")
    # Asks again soon, so that it finds the session at work also where this process is slow.
    monkeypatch.setattr(command, "lease", partial(lease, wait_s=0.1))
    ended: list[BaseException] = []
    thread = running(run, at_work, ended)
    command.pause(Path("small"), run.parent)
    thread.join(30)
    captured = capsys.readouterr()
    assert f"small: paused; `peergate resume small --runs {run.parent}` continues" in captured.out
    if at_work is for_an_answer:
        assert "asked small to pause; it does so at the next safe place (newest entry: " in captured.err
    assert [str(exception) for exception in ended] == ["small"] and overview(run).state == "paused"
    assert not (run / pausing.PAUSE).exists()
    entries = read_entries(run / "trail.sqlite")
    (paused,) = [entry for entry in entries if entry.kind == "pause"]
    assert paused.raw == {"by": "anyone who asked"}
    if at_work is for_an_answer:
        assert any(entry.key == "turn/base.1/plan.1" for entry in entries)
    command.pause(Path("small"), run.parent)
    assert "small: is paused already" in capsys.readouterr().out
    assert not (run / pausing.PAUSE).exists()


def test_a_session_whose_builder_waits_is_cancelled(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    thread = running(run, for_an_api, [])
    assert runtime.cancel(run, Silent()) == run  # pyright: ignore[reportArgumentType]
    thread.join(30)
    assert (overview(run).state, overview(run).decision) == ("closed", "cancelled")


def test_what_does_not_run_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = open_quick(tmp_path)
    before = read_entries(run / "trail.sqlite")
    command.pause(Path("small"), run.parent)
    assert "small: is paused already" in capsys.readouterr().out
    assert read_entries(run / "trail.sqlite") == before
    runtime.cancel(run, Silent())  # pyright: ignore[reportArgumentType]
    command.pause(Path("small"), run.parent)
    assert "small: has ended: cancelled" in capsys.readouterr().out


def test_a_request_no_one_followed_does_not_pause_what_is_resumed(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    pausing.ask_for(run, pausing.PAUSE)
    drive(quick_session(run))
    assert overview(run).state == "closed" and not (run / pausing.PAUSE).exists()


def test_the_pause_is_recorded_in_the_name_of_who_asked(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    assert pausing.find_requester(run)
    (run / pausing.PAUSE).write_text("ada\x1b[31m\n")
    assert pausing.find_requester(run).strip() == "ada"
