"""axe-core finds nothing serious on any page, wide and light, narrow and dark; the pages of exports too."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reviews.history.history import History
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.pages.report.trail_page import trail_page
from sessions.pages.view.places import Scope
from testing.fixtures.browser import CHROMIUM, MISSING, Browser, Page, browser
from testing.fixtures.view_client import served

ACTING = ("", "gate/tuned/1")
"""Pages of a session that waits, with the forms of `--act`."""
PACKAGE = importlib.util.find_spec("axe_core_python")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(CHROMIUM is None, reason=MISSING),
    pytest.mark.skipif(PACKAGE is None, reason="axe-core-python is not installed"),
]
PATHS = ("", "samples", "transcript", "trail", "entry/5", "gate/tuned/1", "number/tuned/1/accuracy")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


def serious(page: Page) -> list[str]:
    """Return what axe-core says is serious or critical."""
    assert PACKAGE is not None and PACKAGE.submodule_search_locations
    source = Path(PACKAGE.submodule_search_locations[0]) / "axe.min.js"
    page.run(f"{source.read_text(encoding='utf-8')}; 0")
    results: list[dict[str, Any]] = json.loads(
        page.run("axe.run(document, {resultTypes: ['violations']}).then(found => JSON.stringify(found.violations))")
    )
    return [
        f"{row['id']}: {row['nodes'][0]['html'][:120]}" for row in results if row["impact"] in ("serious", "critical")
    ]


def check(page: Page) -> None:
    page.run("document.querySelectorAll('details').forEach(details => details.open = true)")
    for width, dark in ((1280, False), (400, True)):
        page.look(width, 900, dark=dark)
        assert serious(page) == [], (page.run("location.pathname"), width, dark)


def test_the_pages_of_sessions(chromium: Browser, waiting: Path, closed_quick: Path) -> None:
    for run, by, paths in ((closed_quick, None, PATHS), (waiting, "ada", ACTING)):
        with served(Scope(run.parent), by) as bound:
            page = chromium.page()
            page.open(bound.address())
            check(page)
            for path in paths:
                page.open(f"http://127.0.0.1:{bound.port}/s/{run.name}/{path}")
                check(page)


def test_the_page_of_an_export(chromium: Browser, waiting: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(
        trail_page(History(read_entries(waiting / "trail.sqlite"), Store(waiting / "store"))), encoding="utf-8"
    )
    page = chromium.page()
    page.open(path.as_uri())
    check(page)
    assert page.requests == [path.as_uri()]


def test_the_control_what_is_wrong_is_found(chromium: Browser, waiting: Path) -> None:
    with served(Scope(waiting.parent), "ada") as bound:
        page = chromium.page()
        page.open(bound.address("s/small/"))
        page.run("document.querySelector('form.answer label').replaceWith(document.querySelector('[name=reason]'))")
        page.run("document.querySelector('#gates h2').style.color = '#ccc'; document.documentElement.lang = ''")
        result = " ".join(serious(page))
        assert all(name in result for name in ("label", "html-has-lang", "color-contrast")), result
