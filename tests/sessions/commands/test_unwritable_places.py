"""Places that cannot be written or read: one message that names them, the documented exit code, nothing half-written.

Root is refused nothing by modes, so the commands run without the capabilities that say so.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testing.fixtures.forked_commands import Peergate, forked_commands
from testing.fixtures.quick_session import drive, open_quick, quick_session

pytestmark = pytest.mark.integration

PR_CAPBSET_DROP, DAC_OVERRIDE, DAC_READ_SEARCH = 24, 1, 2


def obeying_modes() -> None:
    """Let modes hold for the program that is about to be started, also where it runs as root."""
    for capability in (DAC_OVERRIDE, DAC_READ_SEARCH):
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


@pytest.fixture(scope="module")
def peergate() -> Iterator[Peergate]:
    with forked_commands(Path(sys.executable), obeying_modes) as run, pytest.MonkeyPatch.context() as patched:
        # Wide: where a narrow one would break its lines depends on the length of paths.
        patched.setenv("COLUMNS", "400")
        yield run


def is_told(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert done.returncode == code, (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr and "peergate: " in done.stderr, done.stderr
    assert all(word in done.stderr for word in words), done.stderr


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a closed session."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sessions.pages.report.plots.draw", lambda *_: [])  # pyright: ignore[reportUnknownLambdaType]
        run = open_quick(tmp_path_factory.mktemp("workspace"))
        drive(quick_session(run))
    return run


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole.parent, tmp_path / "runs")
    return tmp_path / "runs" / whole.name


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """A folder that no one may write into."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    yield folder
    folder.chmod(0o700)


@pytest.mark.parametrize("place", ["closed", "closed/below", "file", "file/below"])
def test_a_session_cannot_be_started_where_nothing_can_be_written(
    peergate: Peergate, tmp_path: Path, closed: Path, place: str
) -> None:
    (tmp_path / "file").write_text("mine")
    is_told(
        peergate("start", "demo_leaky", "--runs", tmp_path / place), 2, str(tmp_path / place.split("/")[0]), "--runs"
    )
    assert list(closed.iterdir()) == [] and (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("unreadable", ["folder", "trail", "store"])
def test_a_run_that_cannot_be_read_is_listed_as_that_next_to_the_rest(
    peergate: Peergate, run: Path, unreadable: str
) -> None:
    other = run.with_name("other")
    shutil.copytree(run, other)
    shut = {"folder": other, "trail": other / "trail.sqlite", "store": other / "store"}[unreadable]
    shut.chmod(0)
    try:
        done = peergate("list", "--runs", run.parent, "--json")
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
        report = {session["name"]: session for session in json.loads(done.stdout)["sessions"]}
        assert set(report) == {"small", "other"} and report["small"]["state"] == "closed"
        if unreadable != "store":
            assert report["other"]["state"] == "damaged" and "Permission denied" in str(report["other"]["reasons"])
            is_told(peergate("status", "other", "--runs", run.parent), 4, "other", "cannot be read")
        else:
            assert "Traceback" not in peergate("status", "other", "--runs", run.parent).stderr
        assert peergate("status", "small", "--runs", run.parent).returncode == 0
    finally:
        shut.chmod(0o700)


def test_a_workspace_that_cannot_be_read_is_reported(peergate: Peergate, run: Path) -> None:
    run.parent.chmod(0)
    try:
        # Reply by the command line itself, as a use that is wrong.
        done = peergate("list", "--runs", run.parent)
        assert done.returncode == 2 and "not readable" in done.stderr and "Traceback" not in done.stderr, done.stderr
    finally:
        run.parent.chmod(0o700)


def test_a_workspace_that_cannot_be_written_is_listed(peergate: Peergate, run: Path) -> None:
    for folder in (run.parent, run.parent / ".peergate"):
        folder.chmod(0o500)
    try:
        done = peergate("list", "--runs", run.parent)
        assert done.returncode == 0 and "small" in done.stdout and "Traceback" not in done.stderr, done.stderr
    finally:
        for folder in (run.parent, run.parent / ".peergate"):
            folder.chmod(0o700)


@pytest.mark.parametrize("place", ["closed", "file"])
def test_what_leaves_a_workspace_needs_a_place_that_can_be_written(
    peergate: Peergate, run: Path, tmp_path: Path, closed: Path, place: str
) -> None:
    (tmp_path / "file").write_text("mine")
    into = tmp_path / place
    commands = (
        ("audit", "export", run, into / "export"),
        ("audit", "anchor", run, "--folder", into / "heads"),
        ("audit", "cosign", run, "--name", "ada", "--key", into / "key.pem"),
        ("audit", "cosign", run, "--name", "ada", "--key", tmp_path / "key.pem", "--out", into / "note"),
    )
    for command in commands:
        is_told(peergate(*command), 4, str(into), "cannot be written")
    assert list(closed.iterdir()) == [] and (tmp_path / "file").read_text() == "mine"
    assert not list(tmp_path.glob(".*partial"))
