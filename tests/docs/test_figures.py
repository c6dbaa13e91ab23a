"""Pages quote figures of a bench from the file that it wrote, as the bench prints them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import diloco
from specs.home import HOME

RESULTS, PAGES = HOME / "bench" / "results", HOME / "docs" / "decisions"
Lines = Callable[[Any], list[str]]
QUOTED: dict[str, tuple[str, Lines]] = {
    "diloco.json": (
        "0132-what-replicas-cost.md",
        lambda rows: [*diloco.table(rows), *diloco.fitted(rows).splitlines()],
    ),
}


def unsaid(results: Path, page: Path, lines: Lines) -> list[str]:
    """Return the lines of a result that a page does not have."""
    said = page.read_text(encoding="utf-8").splitlines()
    return [line for line in lines(json.loads(results.read_bytes())) if line and line not in said]


@pytest.mark.parametrize("name", QUOTED)
def test_a_page_has_the_figures_of_the_file(name: str, tmp_path: Path) -> None:
    page, lines = QUOTED[name]
    assert unsaid(RESULTS / name, PAGES / page, lines) == []
    text = (PAGES / page).read_text(encoding="utf-8")
    last = lines(json.loads((RESULTS / name).read_bytes()))[-1]
    (tmp_path / page).write_text(text.replace(last, last.replace("1", "2")), encoding="utf-8")
    assert unsaid(RESULTS / name, tmp_path / page, lines) == [last]


def test_every_file_of_results_is_quoted() -> None:
    assert {one.name for one in RESULTS.iterdir()} == set(QUOTED)
