"""A session and its jobs run the same code: what differs is refused before any work, and closes the gate."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from reviews.trail.tables.open_table import read_entries
from sessions.jobs.job_environment import job_environment
from sessions.jobs.job_state import read_exit
from sessions.pods.install import wheel_of_this
from specs.jobs.job_records import Manifest
from specs.system.errors import ExitCode
from specs.system.home import HOME, PACKAGES
from testing.factories.evidence_on_disk import clean_code
from testing.factories.sessions_on_disk import first_order
from testing.fixtures.quick_session import QuickLauncher, drive, open_quick, quick_session
from tests.sessions.jobs.test_wrapper import job
from training.running_code import code_digest

pytestmark = pytest.mark.integration

SAY = "from training.running_code import code_digest; print(code_digest())"


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another checkout, in which a scorer was changed."""
    home = tmp_path_factory.mktemp("elsewhere")
    for name in PACKAGES:
        shutil.copytree(HOME / name, home / name, ignore=shutil.ignore_patterns("__pycache__"))
    with (home / "training" / "jobs" / "job.py").open("a", encoding="utf-8") as handle:
        handle.write("# changed\n")
    return home


def running(home: Path) -> str:
    """Return the digest of the code that a session runs whose user has set PYTHONPATH."""
    environ = os.environ | {"PYTHONPATH": str(home)}
    done = subprocess.run([sys.executable, "-P", "-c", SAY], env=environ, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def ended(folder: Path, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Run the wrapper as the launcher does; return how the job ended and its log."""
    command = [sys.executable, "-P", "-m", "sessions.jobs.wrapper", str(folder)]
    subprocess.run(command, cwd=folder, env=environment or job_environment(), check=True, timeout=120)
    record = read_exit(folder)
    assert record is not None
    return record.code, (folder / "log.txt").read_text()


@pytest.mark.parametrize("same", [True, False], ids=["same", "other"])
def test_a_job_that_would_run_other_code_than_its_session_refuses(tmp_path: Path, elsewhere: Path, same: bool) -> None:
    """The job gets named variables only, so that PYTHONPATH reaches the session and not the job."""
    order = first_order(tmp_path / "session" / "run")
    order = order.model_copy(update={"code": running(HOME if same else elsewhere)})
    folder = job(tmp_path / "jobs" / order.key, order)
    code, log = ended(folder)
    assert code == ExitCode.BLOCKED and log.startswith("refused: ") and "Traceback" not in log
    # The control: with the same code another thing is refused, here that the inputs are not there.
    assert ("the session runs the code" in log) is not same and ("input" in log) is same
    if not same:
        assert order.code in log and code_digest() in log and "PYTHONPATH" in log
    assert not (folder / "out").exists() and not (folder / "manifest.json").exists()


def test_a_job_refuses_files_that_the_digest_of_its_code_does_not_cover(tmp_path: Path, elsewhere: Path) -> None:
    """An engine's machine may set PYTHONPATH: with ``training`` alone, the digest would be that of other files."""
    order = first_order(tmp_path / "session" / "run")
    folder = job(tmp_path / "jobs" / order.key, order)
    (tmp_path / "training").symlink_to(elsewhere / "training")
    environment = job_environment() | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-P", "-c", SAY]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert process.stdout.strip() == order.code, "the digest alone does not find it"
    code, log = ended(folder, environment)
    assert code == ExitCode.BLOCKED and not (folder / "manifest.json").exists()
    assert f"would run 'training' from {elsewhere}, its code is that in {HOME}" in log


class Otherwise(QuickLauncher):
    """Its jobs run other code, and do not refuse."""

    def start(self, folder: Path) -> None:
        super().start(folder)
        path = folder / "manifest.json"
        manifest = Manifest.model_validate_json(path.read_bytes())
        other = "sha256:" + "7" * 64
        path.write_bytes(manifest.model_copy(update={"code": other, "code_state": clean_code(other)}).canonical())


def test_the_gate_stays_closed_over_a_job_that_ran_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(*_: object) -> list[str]:
        return []

    monkeypatch.setattr("sessions.pages.report.plots.draw", draw)
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=Otherwise()))
    entries = read_entries(run / "trail.sqlite")
    summary = next(entry.raw["summary"] for entry in entries if entry.key == "checks/base.1")
    assert summary["provenance.code"] == "FAIL"
    assert not [entry for entry in entries if entry.kind == "decision" and entry.raw["stage"] and entry.raw["opens"]]


def test_code_that_travels_as_a_wheel_has_the_same_digest(tmp_path: Path) -> None:
    _, data = wheel_of_this()
    zipfile.ZipFile(io.BytesIO(data)).extractall(tmp_path)
    assert code_digest(tmp_path) == code_digest()
    (tmp_path / "specs" / "trail" / "grant_and_claim.py").write_text("")
    assert code_digest(tmp_path) != code_digest()
