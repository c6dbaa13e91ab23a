"""What a job leaves next to its rows in sessions: edited logs and unknown files close the gate; secrets do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reviews.trail.tables.open_table import read_entries
from sessions.nodes import job_end
from sessions.session import Session
from specs.jobs.job_records import ExitRecord
from specs.system.digests import digest_file
from testing.fixtures.quick_session import QuickLauncher, drive, open_quick, quick_session

pytestmark = pytest.mark.integration

VALUE = "zt5-Kq8wPlm-20fj3"


class Leaving(QuickLauncher):
    """Changes what the job of stage ``base`` has left."""

    def __init__(self, change: Callable[[Path], None]) -> None:
        super().__init__()
        self._change = change

    def start(self, folder: Path) -> None:
        super().start(folder)
        if folder.name == "small.base.1":
            self._change(folder)


def _edited(folder: Path) -> None:
    (folder / "log.txt").write_text("all is well\n", encoding="utf-8")


def _no_log(folder: Path) -> None:
    (folder / "log.txt").unlink()


def _another_file(folder: Path) -> None:
    (folder / "out" / "other\x1b[2Jrows.jsonl").touch()


def _half_a_file(folder: Path) -> None:
    """Leave what a killed process had begun to write."""
    (folder / "out" / ".rows.jsonl.41.0a1b2c3d").touch()


def _secret(folder: Path) -> None:
    (folder / "log.txt").write_text(f"key: {VALUE}\n", encoding="utf-8")
    record = ExitRecord.model_validate_json((folder / "exit.json").read_bytes())
    record = record.model_copy(update={"log": digest_file(folder / "log.txt")})
    (folder / "exit.json").write_bytes(record.canonical())


def _checks_of_base(run: Path) -> dict[str, tuple[str, str]]:
    """Return status and detail of the first gate's checks."""
    session = quick_session(run)
    body = next(entry.raw for entry in read_entries(run / "trail.sqlite") if entry.key == "checks/base.1")
    results = session.store.get_value(body["checks"])
    return {result["id"]: (result["status"], result["detail"]) for result in results}


@pytest.mark.parametrize(
    ("change", "check", "output"),
    [
        (_edited, "jobs.exit", "edited"),
        (_no_log, "jobs.exit", "edited"),
        (_another_file, "jobs.outputs", "not outputs of its stage: otherrows.jsonl"),
    ],
)
def test_what_was_changed_or_is_unknown_closes_the_gate(
    change: Callable[[Path], None], check: str, output: str, tmp_path: Path
) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=Leaving(change)))
    status, detail = _checks_of_base(run)[check]
    assert status == "FAIL" and output in detail
    assert not any(entry.key == "grant/sample.1" for entry in read_entries(run / "trail.sqlite"))


@pytest.mark.parametrize("change", [_half_a_file, _secret])
def test_what_an_honest_job_may_leave_opens_it(
    change: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_API_KEY", VALUE)
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=Leaving(change)))
    checks = _checks_of_base(run)
    assert {checks["jobs.exit"][0], checks["jobs.outputs"][0]} == {"PASS"}
    assert VALUE not in (run / "jobs" / "small.base.1" / "log.txt").read_text(encoding="utf-8")


def test_a_crash_before_the_log_is_masked_is_made_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_API_KEY", VALUE)
    run = open_quick(tmp_path)
    log = run / "jobs" / "small.base.1" / "log.txt"

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(job_end, "mask_log", killed)
        drive(quick_session(run, launcher=Leaving(_secret)))
    assert VALUE in log.read_text(encoding="utf-8")
    again: Session = quick_session(run, launcher=QuickLauncher())
    drive(again)
    assert VALUE not in log.read_text(encoding="utf-8")
    assert _checks_of_base(run)["jobs.exit"][0] == "PASS"
