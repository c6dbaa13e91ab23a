"""A folder appears complete or not at all, anyone who else makes it, and whatever a killed process left."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from specs.system import new_folder as module
from specs.system.new_folder import PARTIAL, new_folder


def test_it_appears_with_everything_in_it_and_leaves_nothing_next_to_it(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "a"
    with new_folder(target, mode=0o700) as partial:
        (partial / "x").write_text("1")
        assert not target.exists()
    assert (target / "x").read_text() == "1" and target.stat().st_mode & 0o077 == 0
    assert list(target.parent.iterdir()) == [target]


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="stop"), new_folder(tmp_path / "a") as partial:
        (partial / "x").write_text("1")
        raise ValueError("stop")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "folder", "empty folder", "link", "broken link"])
@pytest.mark.parametrize("late", [False, True], ids=["before", "meanwhile"])
def test_what_is_there_stays(tmp_path: Path, kind: str, late: bool) -> None:
    target, other = tmp_path / "a", tmp_path / "other"

    def appear() -> None:
        match kind:
            case "file":
                target.write_text("theirs")
            case "folder":
                target.mkdir()
                (target / "x").write_text("theirs")
            case "empty folder":
                target.mkdir()
            case _:
                other.mkdir() if kind == "link" else None
                target.symlink_to(other)

    if not late:
        appear()
    before = None if late else os.lstat(target)
    with pytest.raises(FileExistsError), new_folder(target) as partial:
        (partial / "x").write_text("ours")
        appear()
    assert before is None or os.lstat(target) == before
    assert not (target / "x").is_file() or (target / "x").read_text() == "theirs"
    assert {path.name for path in tmp_path.iterdir()} <= {"a", "other"}


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_makes_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, alive, of_another = (tmp_path / f".{name}{PARTIAL}" for name in ("a.1", "a.2", "b.1"))
    for folder in (dead, alive, of_another):
        folder.mkdir()
        (folder / "x").write_text("1")
    handle = os.open(alive, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with new_folder(tmp_path / "a"):
        assert dead.exists(), "it may just have been made"
    (tmp_path / "a").rmdir()
    monkeypatch.setattr(module, "_ABANDONED_S", -1.0)
    time.sleep(0.01)
    with new_folder(tmp_path / "a"):
        pass
    os.close(handle)
    assert not dead.exists() and alive.exists() and of_another.exists()
