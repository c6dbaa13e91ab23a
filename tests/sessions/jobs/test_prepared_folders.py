"""A job knows where later jobs and its own witness are going to run: what it leaves there counts for nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reviews.trail.tables.open_table import read_entries
from tests.fixtures.quick_session import QuickLauncher, drive, open_quick, quick_session

pytestmark = pytest.mark.integration


class Preparing(QuickLauncher):
    """Its first job leaves files where another is going to run; as every launcher, it starts no job that is claimed."""

    def __init__(self, other: str, *files: str, link: bool = False) -> None:
        super().__init__()
        self._other, self._files, self._link = other, files, link
        self.ran: list[str] = []

    def start(self, folder: Path) -> None:
        if (folder / "claim").exists():
            return
        super().start(folder)
        self.ran.append(folder.name)
        if folder.name != "small.base.1":
            return
        there = folder.with_name(self._other)
        if self._link:
            there.symlink_to(folder, target_is_directory=True)
        for name in self._files:
            there.mkdir(exist_ok=True)
            (there / name).mkdir() if name == "claim" else (there / name).write_bytes(b"{}")


def _launched(run: Path, key: str) -> dict[str, Any]:
    (found,) = (
        one.body
        for one in read_entries(run / "trail.sqlite")
        if one.entry.kind in ("launch", "challenge") and one.body["key"] == key
    )
    return found


@pytest.mark.parametrize("other", ["small.train.1", "small.base.1.witness"])
@pytest.mark.parametrize("files", [("claim", "exit.json"), ("exit.json",), ("cancel",)])
def test_what_lies_in_a_folder_before_its_launch_is_set_aside(
    tmp_path: Path, other: str, files: tuple[str, ...]
) -> None:
    run, launcher = open_quick(tmp_path), Preparing(other, *files)
    drive(quick_session(run, launcher=launcher))
    assert other in launcher.ran, "the prepared end was taken for its own"
    assert _launched(run, other)["prepared"] == f"{other}.prepared1"
    assert {one.name for one in (run / "jobs" / f"{other}.prepared1").iterdir()} == set(files)
    assert [one.entry.kind for one in read_entries(run / "trail.sqlite")][-1] == "close"


def test_a_link_in_the_place_of_a_folder_is_set_aside(tmp_path: Path) -> None:
    run, launcher = open_quick(tmp_path), Preparing("small.train.1", link=True)
    drive(quick_session(run, launcher=launcher))
    assert "small.train.1" in launcher.ran and not (run / "jobs" / "small.train.1").is_symlink()


def test_what_a_launch_that_was_cut_off_left_stays(tmp_path: Path) -> None:
    run, launcher = open_quick(tmp_path), Preparing("small.train.1", "order.json", ".order.json.part")
    drive(quick_session(run, launcher=launcher))
    assert "prepared" not in _launched(run, "small.train.1")
