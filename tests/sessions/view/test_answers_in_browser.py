"""Answering in a real browser: a person clicks, a page of another server cannot, and no one loses what they typed."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from reviews.reviewers.person import Person
from reviews.trail.tables.open_table import read_entries
from sessions.pages.view.places import Scope
from testing.fixtures.browser import CHROMIUM, MISSING, Browser, Page, browser
from testing.fixtures.quick_session import drive, open_quick, quick_session
from testing.fixtures.view_client import served
from tests.sessions.view.test_view_in_browser import MEASURE, NARROW, SOUND, WIDE, unharmed
from tests.sessions.view.test_view_pages import Critical

pytestmark = [pytest.mark.integration, pytest.mark.skipif(CHROMIUM is None, reason=MISSING)]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a session that asks a person, and one whose gate waits for a verdict: only to be copied."""
    folder = tmp_path_factory.mktemp("asking")
    drive(quick_session(open_quick(folder, name="asked"), reviewer=Critical()))
    judged = open_quick(folder, ("reviewer: {vendor: checklist}", "reviewer: {vendor: person}"), name="judged")
    drive(quick_session(judged, reviewer=Person()))
    return folder


@pytest.fixture
def runs(asking: Path, tmp_path: Path) -> Path:
    return shutil.copytree(asking, tmp_path / "work") / "runs"


def opened(chromium: Browser, address: str) -> Page:
    page = chromium.page()
    page.look(*WIDE)
    page.open(address)
    return page


def test_a_person_stops_a_session_on_its_page(chromium: Browser, runs: Path) -> None:
    with served(Scope(runs), "ada") as bound:
        page = opened(chromium, bound.address("s/asked/"))
        for size in (WIDE, NARROW):
            for dark in (False, True):
                page.look(*size, dark=dark)
                assert page.run(MEASURE) == SOUND, (size, dark)
        page.look(*WIDE)
        # Without a reason the browser sends nothing.
        page.click("button[value=stop]")
        assert page.run("document.querySelector('[name=reason]').validity.valueMissing")
        page.type("[name=reason]", "enough seen")
        page.click("button[value=stop]")
        page.until("document.querySelector('h1')?.textContent === 'Stopped by a person'")
        assert page.run("document.querySelector('form')") is None
        unharmed(page, bound.address())
        # Its stream would fail in the pages of other tests.
        page.call("Page.navigate", url="about:blank")
    (answered,) = [entry.raw for entry in read_entries(runs / "asked" / "trail.sqlite") if entry.kind == "human"]
    assert (answered["answer"], answered["by"], answered["reason"]) == ("stop", "ada", "enough seen")


def test_a_person_judges_a_gate_on_its_page(chromium: Browser, runs: Path) -> None:
    with served(Scope(runs), "ada") as bound:
        page = opened(chromium, bound.address("s/judged/"))
        assert page.run(MEASURE) == SOUND
        page.type("[name=findings]", "/checks/0 too few items")
        page.type("[name=reasoning]", "I counted")
        # What changes elsewhere on the page takes nothing that is typed.
        page.run("refresh()")
        assert page.run("document.querySelector('[name=reasoning]').value") == "I counted"
        page.type("[name=recommendation]", "take more")
        page.click("button[name=approve][value=no]")
        page.until("!!document.querySelector('button[value=resume]')")
        unharmed(page, bound.address())
        # Its stream would fail in the pages of other tests.
        page.call("Page.navigate", url="about:blank")
    (verdict,) = [entry.raw for entry in read_entries(runs / "judged" / "trail.sqlite") if entry.kind == "verdict"]
    assert verdict["reviewer"] == "person"


def test_a_page_of_another_server_cannot_answer_even_with_the_key(chromium: Browser, runs: Path) -> None:
    before = (runs / "asked" / "trail.sqlite").read_bytes()
    with served(Scope(runs), "ada") as bound:
        page = opened(chromium, bound.address("s/asked/"))
        form = page.run("document.querySelector('form.answer').outerHTML")
        target = f"http://127.0.0.1:{bound.port}/s/asked/answer"
        form = form.replace('action="/s/asked/answer"', f'action="{target}"')
        with elsewhere(form) as address:
            page.open(address)
            page.type("[name=reason]", "stolen")
            page.click("button[value=stop]")
            page.until("document.body.innerText.includes('comes from another page')")
        # The browser does send the cookie there, as ports do not make a site: what refuses is where it comes from.
        page.open(f"http://127.0.0.1:{bound.port}/s/asked/")
        assert "It waits for a person" in page.text()
        page.call("Page.navigate", url="about:blank")
    assert (runs / "asked" / "trail.sqlite").read_bytes() == before


@contextmanager
def elsewhere(body: str) -> Generator[str]:
    """Serve a page from another port of this machine; gives its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(f"<!doctype html><title>other</title>{body}".encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/page"
    finally:
        server.shutdown()
        server.server_close()
