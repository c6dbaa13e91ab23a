"""The node `witness` in whole sessions: what it finds closes the gate, and no kill changes its challenge."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from reviews.trail.tables.open_table import read_entries
from sessions.jobs.launcher import JobState
from sessions.runtime import runtime
from sessions.session import PauseSignal
from specs.jobs.job_records import WITNESS, JobOrder
from testing.factories.evidence_on_disk import witnessed, write_rows
from testing.fixtures.command_sessions import called
from testing.fixtures.quick_session import QuickLauncher, Silent, drive, open_quick, quick_session


class Telling(QuickLauncher):
    """Has the witness of stage ``base`` end in a way of its own."""

    def __init__(self, function: Callable[[Path, JobOrder], None]) -> None:
        super().__init__()
        self._function = function

    def start(self, folder: Path) -> None:
        super().start(folder)
        order = JobOrder.model_validate_json((folder / "order.json").read_bytes())
        if order.key == f"small.base.1{WITNESS}":
            self._function(folder, order)

    def poll(self, folder: Path) -> JobState:
        lost = (folder / "lost").exists()
        return JobState("lost", message="the machine is gone") if lost else super().poll(folder)


def _of_other_weights(folder: Path, order: JobOrder) -> None:
    from specs.jobs.job_records import Manifest
    from specs.system.digests import digest_path

    assert order.challenge is not None
    rows = witnessed(order.challenge.rows)
    path = write_rows(folder / "out" / "witness.jsonl", [rows[0] | {"gap": 2.5}, *rows[1:]])
    manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
    result = manifest.model_copy(update={"outputs": {"witness": digest_path(path)}})
    (folder / "manifest.json").write_bytes(result.canonical())


def _lost(folder: Path, _: JobOrder) -> None:
    (folder / "lost").touch()


def _edited(folder: Path, order: JobOrder) -> None:
    """Change the rows after the witness wrote its manifest."""
    assert order.challenge is not None
    write_rows(folder / "out" / "witness.jsonl", witnessed(order.challenge.rows[:-1]))


@pytest.mark.parametrize(
    ("function", "outcome", "why"),
    [(_of_other_weights, "reject", "FAIL"), (_lost, "escalate", "BLOCKED"), (_edited, "escalate", "BLOCKED")],
    ids=["other weights", "lost", "edited"],
)
def test_what_a_witness_cannot_read_closes_the_gate(
    tmp_path: Path, function: Callable[[Path, JobOrder], None], outcome: str, why: str
) -> None:
    run, silent = open_quick(tmp_path), Silent()
    session = quick_session(run, launcher=Telling(function), display=silent)  # pyright: ignore[reportArgumentType]
    drive(session)
    entries = read_entries(run / "trail.sqlite")
    decided = [entry.raw for entry in entries if entry.kind == "decision"][-1]
    checks = next(entry.raw for entry in entries if entry.key == "checks/base.1")
    assert (decided["stage"], decided["outcome"]) == ("base", outcome), decided["reasons"]
    assert checks["summary"]["witness.answers"] == why
    paid = next(entry.raw for entry in entries if entry.key == f"settle/small.base.1{WITNESS}")
    assert paid["what"] == "settle"


def test_a_session_with_witnesses_is_verified_and_their_changed_rows_are_found(
    closed_quick: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(closed_quick.parent, tmp_path / "runs") / closed_quick.name
    assert called("audit", "verify", run).returncode == 0
    rows = run / "jobs" / f"small.base.1{WITNESS}" / "out" / "witness.jsonl"
    rows.write_bytes(rows.read_bytes().replace(b"0.0", b"9.9", 1))
    assert called("audit", "verify", run).returncode == 1


class HoldingLauncher(QuickLauncher):
    """The session is asked to pause while its first witness runs."""

    stop: threading.Event

    def poll(self, folder: Path) -> JobState:
        if folder.name.endswith(WITNESS):
            self.stop.set()
            return JobState("running")
        return super().poll(folder)


def test_a_session_that_is_cancelled_under_a_witness_ends_and_pays_for_it(tmp_path: Path) -> None:
    run, launcher = open_quick(tmp_path), HoldingLauncher()
    session = quick_session(run, launcher=launcher)
    launcher.stop = session.stop
    with pytest.raises(PauseSignal):
        drive(session)
    kinds = [entry.kind for entry in read_entries(run / "trail.sqlite")]
    assert kinds[-2:] == ["challenge", "pause"]
    runtime.cancel(run, Silent())  # pyright: ignore[reportArgumentType]
    assert (run / "jobs" / f"small.base.1{WITNESS}" / "cancel").exists()
    keys = [entry.key for entry in read_entries(run / "trail.sqlite")]
    assert keys[-5:] == ["witness/base.1", f"settle/small.base.1{WITNESS}", "pause/2", "report", "close"]
    assert called("audit", "verify", run).returncode == 0
