"""Whole files are read, whatever size their folder gives them, and none of more than a limit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from specs.system import regular_files
from specs.system.regular_files import read_regular


def test_a_file_is_read_whole_and_none_beyond_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "data"
    for size in (0, 1, 10_000):
        path.write_bytes(b"x" * size)
        assert read_regular(path) == read_regular(str(path), size) == b"x" * size
    with pytest.raises(OSError, match="larger than 9,999 bytes"):
        read_regular(path, 9_999)


def test_a_file_without_a_size_is_read_whole_and_within_the_limit() -> None:
    text = read_regular(Path("/proc/self/status"))
    assert text.startswith(b"Name:") and text.count(b"\n") > 20
    with pytest.raises(OSError, match="larger than 10 bytes"):
        read_regular(Path("/proc/self/status"), 10)


def test_a_file_that_grows_while_it_is_read_is_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"begin")
    fstat = os.fstat

    def fstat_before_more(handle: int) -> os.stat_result:
        status = fstat(handle)
        with path.open("ab") as file:
            file.write(b" more")
        return status

    monkeypatch.setattr(regular_files.os, "fstat", fstat_before_more)
    # Twice: before it is opened, and before it is read.
    assert read_regular(path) == b"begin more more"
    with pytest.raises(OSError, match="larger than 20 bytes"):
        read_regular(path, 20)
