"""A session that stands still says why, in `status`, in `list` and on its page; a broken job is one cause."""

from __future__ import annotations

import html
import shlex
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from agents.workbench_protocol import Workbench
from reviews.checks.job_endings import ending_of_record
from reviews.history.history import History
from reviews.reviewers.person import Person, verdict_text
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.pages.overview import overview
from sessions.pages.report.next_steps import remedies, waiting_for
from sessions.pages.view.places import Scope
from sessions.run import pause
from sessions.runtime import runtime
from sessions.session import PauseSignal, Session
from specs.jobs.job_records import ExitRecord, JobOrder
from specs.system.digests import digest_file
from testing.fixtures.command_sessions import called as peergate
from testing.fixtures.hostile_trail import Critical
from testing.fixtures.quick_session import CostlyPlaybook, QuickLauncher, Silent, drive, open_quick, quick_session
from testing.fixtures.view_client import Client
from tests.sessions.report.test_page_in_browser import Refuses


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
    return "base.1: the builder stopped: it requested no launch"


def paused(run: Path) -> str:
    session = quick_session(run)
    session.stop.set()
    with pytest.raises(PauseSignal):
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


def short_of_money(run: Path) -> str:
    drive(quick_session(run, CostlyPlaybook()))
    return "the builder's turn may cost 1000.0000 USD"


def amended(run: Path) -> str:
    short_of_money(run)
    done = peergate("amend", run, "--max-cost", "50", "--reason", "a reason")
    assert done.returncode == 0, done.stderr
    return "the design was amended: `peergate resume` continues"


def waits_for_verdict(run: Path) -> str:
    drive(quick_session(run, reviewer=Person()))
    return "gate design.1 waits for a person's verdict"


def judged(run: Path) -> str:
    waits_for_verdict(run)
    assert peergate("review", "give", run, "--file", approval(run.parents[1])).returncode == 0
    return "a person has judged the gate: `peergate resume` continues"


def approval(folder: Path) -> Path:
    """Return a file with a person's answer that approves."""
    (folder / "verdict.json").write_text(verdict_text([], "read", "go on", True))
    return folder / "verdict.json"


BY_A_PERSON = ("reviewer: {vendor: checklist}", "reviewer: {vendor: person}")


def open_for(folder: Path, stop: Callable[[Path], str]) -> Path:
    return open_quick(folder, *([BY_A_PERSON] if stop in (waits_for_verdict, judged) else []))


@pytest.mark.parametrize(
    "stop",
    [stopped_builder, paused, killed, cancelled, waiting, short_of_money, amended, waits_for_verdict, judged],
)
def test_status_list_and_page_say_why(tmp_path: Path, stop: Callable[[Path], str]) -> None:
    run = open_for(tmp_path, stop)
    why = stop(run)
    assert overview(run).reasons[0].startswith(why)
    assert why in peergate("status", run).stdout
    assert why in peergate("list", "--runs", run.parent).stdout
    page = Client(Scope(run.parent)).get("/s/small/")
    assert page.status == 200 and why in html.unescape(page.text)


def test_a_broken_job_is_one_cause_with_one_remedy(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=Breaks()))
    reasons = overview(run).reasons
    assert len(reasons) == 2 and "18 checks and criteria have no evidence" in reasons[1]
    (remedy,) = remedies(History(read_entries(run / "trail.sqlite"), Store(run / "store")))
    assert remedy.check == "jobs.exit" and "ran out of memory" in remedy.remedy


@pytest.mark.parametrize(
    ("code", "reason", "log", "words"),
    [
        (-9, "signal", "", "ran out of memory"),
        (137, "exited", "", "ran out of memory"),
        (1, "exited", "torch.OutOfMemoryError: CUDA out of memory", "too little memory"),
        (1, "exited", "ModuleNotFoundError: No module named 'bitsandbytes'", "peergate[qlora]"),
        (-15, "timeout", "", "max_minutes"),
        (0, "dead_man", "", "peergate resume"),
        (-11, "signal", "", "the end of the job's log"),
    ],
)
def test_the_remedy_fits_how_the_job_ended(code: int, reason: str, log: str, words: str) -> None:
    values = {"key": "a", "code": code, "reason": reason, "started": 1, "ended": 2, "host": "h"}
    record = ExitRecord.model_validate(values | {"log": "sha256:" + "0" * 64})
    assert words in ending_of_record(record, log).remedy


def retracted(run: Path) -> str:
    drive(quick_session(run, launcher=Breaks()))
    assert peergate("retract", run, "decision/base.1", "--reason", "a reason").returncode == 0
    return ""


def retracted_design(run: Path) -> str:
    drive(quick_session(run, launcher=Breaks()))
    assert peergate("retract", run, "decision/design.1", "--reason", "a reason").returncode == 0
    return ""


WORDS = {"WHY": "a reason", "USD": "50"}
"""What a person fills in."""
SITUATIONS = [
    *(stopped_builder, waiting, retracted, short_of_money, waits_for_verdict),
    *(pytest.param(stop, marks=pytest.mark.more) for stop in (paused, killed, retracted_design, amended, judged)),
]


@pytest.mark.parametrize("stop", SITUATIONS)
def test_every_way_out_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: Callable[[Path], str]) -> None:
    """Each offered command is typed as it stands, on a copy of the session: none is refused as a wrong request."""
    make = runtime.make_session

    def quick(*values: object) -> Session:
        session = make(*values)  # type: ignore[arg-type]
        session.launcher = QuickLauncher()
        return session

    monkeypatch.setattr(runtime, "make_session", quick)
    run = open_for(tmp_path, stop)
    stop(run)
    filled = WORDS | {"VERDICT.json": str(approval(tmp_path))}
    entries, store = read_entries(run / "trail.sqlite"), Store(run / "store")
    ways = waiting_for(History(entries, store), run)["answers"]
    assert ways
    for number, way in enumerate(ways):
        copy = tmp_path / f"copy {number}"
        shutil.copytree(run.parent, copy / "runs")
        for command in way.commands:
            assert command.startswith("peergate ")
            words = [filled.get(word, word) for word in shlex.split(command)[1:]]
            words = [str(copy / "runs") if word == str(run.parent) else word for word in words]
            done = peergate(*words)
            assert done.returncode != 2, (command, done.stderr)


def test_what_retract_offers_is_what_status_offers(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=Breaks()))
    output = peergate("retract", run, "decision/design.1", "--reason", "a reason").stdout
    assert "--answer retry" not in output and "--answer stop" in output
    assert [line for line in output.splitlines() if line.startswith("  peergate ")] == [
        line for line in peergate("status", run).stdout.splitlines() if line.startswith("  peergate ")
    ]


def test_a_closed_session_offers_no_answer_to_a_retraction(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run))
    output = peergate("retract", run, "decision/base.1", "--reason", "a reason").stdout
    assert "is closed and stays so" in output and "--answer" not in output
    assert peergate("status", run).stdout.startswith("small: closed, retracted")


def overridden(run: Path) -> str:
    drive(quick_session(run, reviewer=Critical()))
    drive(quick_session(run), {"answer": "approve", "reason": "a reason", "by": "ada", "expires": None})
    return "overridden"


def rejected(run: Path) -> str:
    drive(quick_session(run, reviewer=Refuses()))
    return "reject"


def retracted_at_the_end(run: Path) -> str:
    drive(quick_session(run))
    assert peergate("retract", run, "decision/base.1", "--reason", "a reason").returncode == 0
    return "retracted"


@pytest.mark.parametrize("end", [overridden, rejected, retracted_at_the_end])
def test_further_seeds_of_a_session_that_was_not_accepted_are_confirmed(
    tmp_path: Path, end: Callable[[Path], str]
) -> None:
    run = open_quick(tmp_path)
    decision = end(run)
    assert overview(run).state == "closed"
    done = peergate("replicate", run, "--seeds", "2")
    assert done.returncode == 2 and f"was not accepted ({decision})" in done.stderr and "--yes" in done.stderr
    assert not [entry for entry in read_entries(run / "trail.sqlite") if entry.kind == "replication_plan"]
