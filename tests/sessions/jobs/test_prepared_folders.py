"""A job knows where later jobs and its own witness are going to run: what it leaves for them counts for nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from reviews.audit.verify import verify_run
from reviews.trail.tables.open_table import read_entries
from sessions.jobs.launcher import _set_aside  # pyright: ignore[reportPrivateUsage]
from sessions.jobs.orphans import VARIABLE
from testing.fixtures.quick_session import QuickLauncher, drive, open_quick, quick_session

FIRST, PREPARED = "small.base.1", ("small.base.1.witness", "small.train.1")


class Preparing(QuickLauncher):
    """Its first job leaves ends of others, and a process. Like every launcher, it starts no job that is claimed."""

    straggler: subprocess.Popen[bytes] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[str] = []
        self.met: list[str] = []

    def start(self, folder: Path) -> None:
        if (folder / "claim").exists():
            return
        super().start(folder)
        self.ran.append(folder.name)
        if folder.name != FIRST:
            self.met += [folder.name] if self.straggler is not None and self.straggler.poll() is None else []
            return
        self.straggler = subprocess.Popen(["sleep", "60"], env=os.environ | {VARIABLE: str(folder.resolve())})
        for name in PREPARED:
            (folder.with_name(name) / "claim").mkdir(parents=True)
            (folder.with_name(name) / "exit.json").write_bytes((folder / "exit.json").read_bytes())


@pytest.mark.integration
def test_neither_ends_nor_processes_that_a_job_leaves_for_others_count(tmp_path: Path) -> None:
    run, launcher = open_quick(tmp_path), Preparing()
    try:
        drive(quick_session(run, launcher=launcher))
        assert launcher.straggler is not None and launcher.straggler.poll() is not None and not launcher.met
    finally:
        if launcher.straggler is not None:
            launcher.straggler.kill()
            launcher.straggler.wait()
    assert set(PREPARED) <= set(launcher.ran), "an end that was prepared was taken for that of the job"
    entries = read_entries(run / "trail.sqlite")
    launched = {entry.raw["key"]: entry.raw for entry in entries if entry.kind in ("launch", "challenge")}
    assert {key for key, body in launched.items() if "prepared" in body} == set(PREPARED)
    for key in PREPARED:
        assert {path.name for path in (run / "jobs" / launched[key]["prepared"]).iterdir()} == {"claim", "exit.json"}
    assert entries[-1].kind == "close"
    assert verify_run(run, "trail.sqlite", "store").damage == []


@pytest.mark.parametrize("name", ["claim", "exit.json", "manifest.json", "cancel", "out", "anything"])
def test_what_a_launcher_did_not_write_is_set_aside(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "small.train.1"
    for count in (1, 2):
        (folder / name).mkdir(parents=True)
        assert _set_aside(folder) == f"small.train.1.prepared{count}"
        assert not folder.exists() and (tmp_path / f"small.train.1.prepared{count}" / name).is_dir()


def test_a_link_in_the_place_of_a_folder_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "small.train.1").symlink_to(tmp_path, target_is_directory=True)
    assert _set_aside(tmp_path / "small.train.1") == "small.train.1.prepared1"


@pytest.mark.parametrize("names", [(), ("order.json", "recipe.py", ".order.json.part")])
def test_what_a_launch_that_was_cut_off_left_stays(tmp_path: Path, names: tuple[str, ...]) -> None:
    folder = tmp_path / "small.train.1"
    assert _set_aside(folder) is None
    folder.mkdir()
    for name in names:
        (folder / name).touch()
    assert _set_aside(folder) is None and {path.name for path in folder.iterdir()} == set(names)
