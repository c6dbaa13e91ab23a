"""The tests that decisions 119, 155 and 156 name are there: a row that claims more than a test shows fails."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from specs.home import HOME

ROWS = {
    "0119-what-shows-each-acceptance-test.md": [*range(1, 11)],
    "0155-what-shows-each-part-of-the-composer.md": [*range(1, 30), *range(41, 54)],
    "0156-what-shows-each-row-of-the-ship-gate.md": [*range(1, 41)],
}
"""Of each page."""
PAGES = {name: (HOME / "docs" / "decisions" / name).read_text(encoding="utf-8") for name in ROWS}


def rows_of(page: str) -> list[list[str]]:
    """Return the cells of each numbered row; the last two are what shows it, and what is not shown."""
    rows = [line.split("|")[1:-1] for line in PAGES[page].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows if row[0].strip().isdigit()]


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


@pytest.mark.parametrize("page", PAGES)
def test_every_row_names_tests_that_are_there_or_says_what_is_not_shown(page: str) -> None:
    rows = rows_of(page)
    assert [int(row[0]) for row in rows] == ROWS[page]
    assert all(named(row[-2]) or row[-1] for row in rows)
    # A row about a GPU is no claim before a GPU ran it.
    claimed = [row[-1].startswith("not run") for row in rows if row[1] == "GPU"]
    assert claimed == [True] * page.startswith(("0119", "0155"))


@cache
def _module(file: str) -> ast.Module:
    return ast.parse((HOME / file).read_text(encoding="utf-8"))


def runs_in_ci(file: str, test: str) -> bool:
    """Return whether CI runs a test: neither it nor its module is marked slow or nightly, or for a GPU."""
    marks = ""
    for node in _module(file).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            marks += ast.unparse(node.value)
        if isinstance(node, ast.FunctionDef) and node.name == test:
            marks += " ".join(
                ast.unparse(mark) for mark in node.decorator_list if "parametrize" not in ast.unparse(mark)
            )
    return not re.search(r"mark\.(slow|nightly|cuda|llama)\b", marks)


def unproven(rows: list[list[str]]) -> list[str]:
    """Return the rows that CI runs no test of, and that do not say so."""
    return [
        row[0]
        for row in rows
        if named(row[-2]) and not any(runs_in_ci(*test) for test in named(row[-2])) and "not in CI" not in row[-1]
    ]


@pytest.mark.parametrize("page", PAGES)
def test_what_proves_a_row_runs_in_ci_or_the_row_says_that_it_does_not(page: str) -> None:
    assert unproven(rows_of(page)) == []


def test_a_proof_that_ci_does_not_run_is_noticed() -> None:
    slow = "`tests/stages/finetuning/online/test_real_weights.py::test_each_kind_trains_real_weights_to_its_end`"
    assert unproven([["1", "a", slow, ""], ["2", "b", slow, "not in CI: slow"]]) == ["1"]
    quick = "`tests/docs/test_acceptance_map.py::test_no_test_that_is_named_is_gone`"
    assert unproven([["1", "a", f"{slow}, {quick}", ""]]) == []


@pytest.mark.parametrize("page", PAGES)
def test_no_test_that_is_named_is_gone(page: str) -> None:
    assert missing(PAGES[page]) == []
    assert missing("`tests/docs/test_acceptance_map.py::test_nothing`") != []
