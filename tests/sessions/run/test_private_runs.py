"""Run folders are for their user alone, whatever the umask: they hold the held-out items."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessions.run.private_files import OTHERS
from specs.jobs.job_records import JobOrder
from testing.factories.sessions_on_disk import first_order
from testing.fixtures.command_sessions import called
from tests.sessions.jobs.test_wrapper import DRIVER, job

pytestmark = pytest.mark.integration

HOME = Path(__file__).parents[3]
NOBODY = 65534
READ = """
import os, sys
from pathlib import Path
os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})
found = {{}}
for name in sys.argv[1:]:
    try:
        found[name] = len(Path(name).read_bytes())
    except OSError as error:
        print(name, type(error).__name__)
    else:
        print(name, "read")
"""


def peergate(*arguments: str, cwd: Path, umask: int = 0o022) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"PYTHONPATH": str(HOME)}
    command = [sys.executable, "-m", "sessions.commands.cli", *arguments]
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, umask=umask, check=False)


def open_to_others(folder: Path) -> list[str]:
    return [f"{path} {path.stat().st_mode & 0o777:o}" for path in (folder, *folder.rglob("*")) if is_readable(path)]


def is_readable(path: Path) -> bool:
    return not path.is_symlink() and bool(path.stat().st_mode & OTHERS)


@pytest.fixture(scope="module")
def reachable() -> Iterator[Path]:
    """A folder that every user of the machine can go through, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def made(reachable: Path) -> Path:
    """The folder in which `peergate start` made a run folder under umask 022."""
    folder = reachable / "made"
    folder.mkdir(0o755)
    done = called("start", "demo_leaky", cwd=folder)
    assert done.returncode == 3, done.stderr
    return folder


@pytest.fixture
def stopped_at_the_gate(made: Path, reachable: Path, request: pytest.FixtureRequest) -> Path:
    """The run folder that `peergate start` made, copied with the modes of its files."""
    folder = reachable / request.node.name
    shutil.copytree(made, folder)
    return folder / "runs" / "demo_leaky"


def test_what_a_session_writes_is_for_its_user_alone_whatever_the_umask(stopped_at_the_gate: Path) -> None:
    assert open_to_others(stopped_at_the_gate) == []
    # The keys next to it always were.
    assert open_to_others(stopped_at_the_gate.parent / ".peergate") == []


def read_as_nobody(*paths: Path) -> list[str]:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
    if python is None:
        pytest.skip("no interpreter that every user can start")
    command = [python, "-I", "-c", READ.format(nobody=NOBODY), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line.rpartition(" ")[2] for line in done.stdout.splitlines()]


def test_another_user_cannot_read_held_out_items(stopped_at_the_gate: Path) -> None:
    stored = [path for path in sorted((stopped_at_the_gate / "store").rglob("*")) if path.is_file()]
    assert len(stored) > 3 and set(read_as_nobody(*stored)) == {"PermissionError"}
    # The control: the same files, as an older umask left them.
    for path in (stopped_at_the_gate.parent, stopped_at_the_gate, *stopped_at_the_gate.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert set(read_as_nobody(*stored)) == {"read"}


def test_what_a_wrapper_and_its_job_write_is_for_their_user_alone(tmp_path: Path) -> None:
    """An engine starts wrappers under a umask of its own."""
    order: JobOrder = first_order(tmp_path / "session" / "run")
    folder = job(tmp_path / "jobs" / order.key, order)
    there = set(folder.rglob("*"))
    program = "import sys; from pathlib import Path; Path(sys.argv[1], 'of-the-job').mkdir()"
    subprocess.run([sys.executable, str(DRIVER), program, str(folder)], cwd=folder, umask=0o022, check=True)
    made = set(folder.rglob("*")) - there
    assert {"of-the-job", "log.txt", "exit.json", "claim"} <= {path.name for path in made}
    assert [path for path in made if is_readable(path)] == []


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("status", "small"), marks=pytest.mark.slow),
        pytest.param(("resume", "small"), marks=pytest.mark.slow),
        ("start", "demo_leaky", "--name", "next"),
    ],
    ids=lambda item: item[0],
)
def test_a_run_folder_that_others_can_open_is_reported_once(
    closed_quick: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    run = shutil.copytree(closed_quick.parent, tmp_path / "runs") / closed_quick.name
    for mode, flag in ((0o750, True), (0o700, False)):
        run.chmod(mode)
        shutil.rmtree(tmp_path / "runs" / "next", ignore_errors=True)
        done = called(*command, cwd=tmp_path)
        lines = [line for line in done.stderr.splitlines() if line.startswith("warning: other users")]
        assert len(lines) == flag, (oct(mode), done.stderr)
        if flag:
            assert "small" in lines[0] and "chmod 700" in lines[0]


def test_an_export_gets_the_modes_that_the_user_wants(closed_quick: Path, tmp_path: Path) -> None:
    for umask, mode in ((0o022, 0o755), (0o077, 0o700)):
        target = tmp_path / f"export{umask}"
        done = peergate("audit", "export", str(closed_quick), str(target), cwd=tmp_path, umask=umask)
        assert done.returncode == 0, done.stderr
        assert target.stat().st_mode & 0o777 == mode
