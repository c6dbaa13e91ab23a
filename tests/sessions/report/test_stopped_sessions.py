"""A session that stands still says why, in `status`, in `list` and on its page; a broken job is one cause."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from agents.workbench_protocol import Workbench
from reviews.checks.job_checks import remedy_of_exit
from reviews.trail.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions import runtime
from sessions.report.next_steps import remedies
from sessions.report.overview import overview
from sessions.run import pause
from sessions.session import Paused
from sessions.view.places import Scope
from specs.digests import digest_file
from specs.job_records import ExitRecord, JobOrder
from tests.e2e.sessions import called as peergate
from tests.fixtures.quick_session import QuickLauncher, Silent, drive, open_quick, quick_session
from tests.fixtures.view_client import Client


class Quits:
    """A builder that asks for nothing."""

    name = "playbook"

    def work(self, bench: Workbench) -> None:
        """Do nothing."""


@dataclass
class Breaks(QuickLauncher):
    """A launcher whose job of the stage ``base`` breaks and leaves nothing but its log."""

    code: int = -9
    reason: str = "signal"
    log: str = "loading\n"

    def start(self, folder: Path) -> None:
        order = JobOrder.model_validate_json((folder / "order.json").read_bytes())
        if order.grant.stage != "base":
            return super().start(folder)
        (folder / "log.txt").write_text(self.log)
        record = ExitRecord.model_validate(
            {"key": order.key, "code": self.code, "reason": self.reason, "started": time.time(), "ended": time.time()}
            | {"host": "here", "log": digest_file(folder / "log.txt"), "peak_rss_mb": 23900.0}
        )
        (folder / "exit.json").write_bytes(record.canonical())
        return None


def stopped_builder(run: Path) -> str:
    drive(quick_session(run, Quits()))
    return "base.1: the builder stopped: it asked for no launch"


def paused(run: Path) -> str:
    session = quick_session(run)
    session.stop.set()
    with pytest.raises(Paused):
        drive(session)
    return "paused by "


def killed(run: Path) -> str:
    """Leave a trail that ends in the middle, as after `kill -9`."""
    session = quick_session(run)
    session.trail.close()
    return "its process ended without a pause: it was killed, or its machine stopped"


def cancelled(run: Path) -> str:
    drive(quick_session(run, Quits()))
    pause.ask_for(run, pause.CANCEL)
    runtime.cancel(run, Silent())  # type: ignore[arg-type]
    return "cancelled by "


def waiting(run: Path) -> str:
    drive(quick_session(run, launcher=Breaks()))
    return "check jobs.exit is FAIL: the job was killed by SIGKILL; its processes held up to 23,900 MB"


@pytest.mark.parametrize("stop", [stopped_builder, paused, killed, cancelled, waiting])
def test_status_list_and_page_say_why(tmp_path: Path, stop: Callable[[Path], str]) -> None:
    run = open_quick(tmp_path)
    why = stop(run)
    assert overview(run).reasons[0].startswith(why)
    assert why in peergate("status", run).stdout
    assert why in peergate("list", "--runs", run.parent).stdout
    page = Client(Scope(run.parent)).get("/s/small/")
    assert page.status == 200 and why in page.text


def test_a_broken_job_is_one_cause_with_one_remedy(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=Breaks()))
    reasons = overview(run).reasons
    assert len(reasons) == 2 and "18 checks and criteria have no evidence" in reasons[1]
    (remedy,) = remedies(read_entries(run / "trail.sqlite"), Store(run / "store"))
    assert remedy["check"] == "jobs.exit" and "too little memory" in remedy["remedy"]


@pytest.mark.parametrize(
    ("code", "reason", "log", "words"),
    [
        (-9, "signal", "", "too little memory"),
        (137, "exited", "", "too little memory"),
        (1, "exited", "torch.OutOfMemoryError: CUDA out of memory", "too little memory"),
        (1, "exited", "ModuleNotFoundError: No module named 'bitsandbytes'", "the end of the job's log"),
        (-15, "timeout", "", "max_minutes"),
        (0, "dead_man", "", "peergate resume"),
        (-11, "signal", "", "the end of the job's log"),
    ],
)
def test_the_remedy_fits_how_the_job_ended(code: int, reason: str, log: str, words: str) -> None:
    values = {"key": "a", "code": code, "reason": reason, "started": 1, "ended": 2, "host": "h"}
    record = ExitRecord.model_validate(values | {"log": "sha256:" + "0" * 64})
    assert words in remedy_of_exit(record, log)
