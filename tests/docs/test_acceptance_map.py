"""The tests that decisions 119 and 155 name are there: a row that claims more than a test shows fails."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specs.home import HOME

DECISIONS = HOME / "docs" / "decisions"
PAGES = {
    DECISIONS / "0119-what-shows-each-acceptance-test.md": list(range(1, 11)),
    DECISIONS / "0155-what-shows-each-part-of-the-composer.md": [*range(1, 24), *range(41, 54)],
}
"""With the numbers of their rows."""


def named(text: str) -> list[tuple[str, str]]:
    """Return every test that a text names: its file, and its function; `::name` is of the file before it."""
    found: list[tuple[str, str]] = []
    for file, test in re.findall(r"`([\w/.]*)::(\w+)`", text):
        found.append((file or found[-1][0], test))
    return found


def missing(text: str) -> list[str]:
    """Return the tests that a text names and that are not there."""
    gone: list[str] = []
    for file, test in named(text):
        path = HOME / file
        if not path.is_file() or not re.search(rf"^def {test}\(", path.read_text(encoding="utf-8"), re.MULTILINE):
            gone.append(f"{file}::{test}")
    return gone


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem[:4])
def test_every_row_names_tests_that_are_there_or_says_what_is_not_shown(page: Path) -> None:
    rows = [line.split("|")[1:-1] for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in row] for row in rows[1:] if row[0].strip().isdigit()]
    assert [int(row[0]) for row in rows] == PAGES[page]
    assert all(named(row[2]) or row[3] for row in rows)
    # A row about a GPU is no claim before a GPU ran it.
    assert [row[3].startswith("not run") for row in rows if row[1] in ("GPU", "a session on a GPU")] == [True]


def test_no_test_that_is_named_is_gone() -> None:
    assert [missing(page.read_text(encoding="utf-8")) for page in PAGES] == [[], []]
    assert missing("`tests/docs/test_acceptance_map.py::test_nothing`") != []
