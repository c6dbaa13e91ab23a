"""A part of ``bench/attack/sandbox.py``, with its walls and without each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.attack.sandbox import NO_COUNT, NO_FILTER, run
from testing.fixtures.sandbox import needs_sandbox

pytestmark = [pytest.mark.integration, needs_sandbox]
COUNTED = (
    "memory of processes whose first thread has ended",
    "page tables",
    "Unix sockets",
    "links in /tmp",
    "threads",
)
FILTERED = ("memory shared and let go of", "huge pages in pipes")
LEFT = ("links to what is outside", "hard links", "refused: folders three thousand deep")


def missed(folder: Path, *names: str, change: str = "") -> set[str]:
    """Return by name which of these attacks were missed."""
    outcome = run(1, folder, change, lambda name: name in names)
    assert not outcome.not_run and outcome.attempts >= len(names)
    return {line.partition(":")[0] for line in outcome.missed}


def test_no_call_comes_through(tmp_path: Path) -> None:
    assert missed(tmp_path, "calls") == set()


def test_without_the_filter_the_calls_come_through(tmp_path: Path) -> None:
    results = missed(tmp_path, "calls", change=NO_FILTER)
    assert results > {
        "io_uring_setup",
        "socket of family 16",
        "ptrace",
        "mmap shared",
        "memfd_create",
        "splice",
        "clone3",
    }


@pytest.mark.parametrize("name", FILTERED)
def test_memory_that_no_one_could_count_cannot_be_had(tmp_path: Path, name: str) -> None:
    assert missed(tmp_path, name) == set()
    assert missed(tmp_path / "again", name, change=NO_FILTER) == {name}


@pytest.mark.parametrize("name", COUNTED)
def test_what_is_held_in_any_way_is_counted(tmp_path: Path, name: str) -> None:
    assert missed(tmp_path, name) == set()
    assert missed(tmp_path / "again", name, change=NO_COUNT) == {name}


def test_only_plain_files_under_plain_names_are_kept(tmp_path: Path) -> None:
    assert missed(tmp_path, *LEFT) == set()
