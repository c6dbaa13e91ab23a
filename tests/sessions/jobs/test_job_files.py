"""Whatever a job puts in the place of its files, nothing outside of its folder is read for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from reviews.trail.tables.open_table import read_entries
from sessions.jobs.job_state import newest_progress
from sessions.jobs.untrusted_files import NotReadable, is_own_file, open_file, read_end
from testing.fixtures.quick_session import QuickLauncher, drive, open_quick, quick_session

SECRET = b"what is outside"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "outside").write_bytes(SECRET)
    made = tmp_path / "job"
    made.mkdir()
    yield made


def test_a_regular_file_is_read_from_its_end(folder: Path) -> None:
    (folder / "log.txt").write_bytes(b"0123456789")
    assert read_end(folder / "log.txt", 4) == (b"6789", False)
    assert read_end(folder / "log.txt", 10) == (b"0123456789", True)
    with open_file(folder / "log.txt") as handle:
        assert handle.read() == b"0123456789"


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "folder", "nothing", "link to nothing", "socket folder"])
def test_anything_else_is_refused_at_once(folder: Path, kind: str) -> None:
    path = folder / "log.txt"
    if kind == "link":
        path.symlink_to(folder.parent / "outside")
    elif kind == "hard link":
        os.link(folder.parent / "outside", path)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link to nothing":
        path.symlink_to(folder / "nowhere")
    elif kind == "socket folder":
        folder.rmdir()
        folder.symlink_to(folder.parent)
        (folder.parent / "log.txt").write_bytes(SECRET)
    assert not is_own_file(path)
    with pytest.raises(NotReadable, match=r"log\.txt"):
        read_end(path, 100)


@pytest.mark.parametrize("text", ["[" * 60_000, "{}", "nothing", '{"time": NaN}', "", '{"done": 1e999}'])
def test_progress_that_is_none_is_none(folder: Path, text: str) -> None:
    (folder / "progress.jsonl").write_text(f"{text}\n")
    assert newest_progress(folder) is None


class Links(QuickLauncher):
    """Jobs that leave links to a secret in the place of their rows and log."""

    def start(self, folder: Path) -> None:
        super().start(folder)
        secret = folder.parents[3] / "secret"
        secret.write_bytes(SECRET)
        for name in ("out/rows.jsonl", "log.txt"):
            (folder / name).unlink()
            (folder / name).symlink_to(secret)


def test_links_a_job_leaves_are_kept_nowhere_and_close_the_gate(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=Links()))
    entries = read_entries(run / "trail.sqlite")
    (ended,) = [entry for entry in entries if entry.kind == "exit"]
    assert ended.raw["outputs"] == {}
    assert entries[-1].raw["outcome"] == "escalate"
    paths = [path for path in (run / "store").rglob("*") if path.is_file()]
    assert len(paths) > 5 and not any(SECRET in path.read_bytes() for path in paths)
