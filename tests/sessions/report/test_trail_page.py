"""The page of an export: it loads nothing, tells the trail in order, and nothing that others wrote is markup in it."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from reviews.trail.trail import Trail
from sessions.pages.report import trail_page as pages
from sessions.pages.report.consult_context import ConsultContext
from sessions.pages.report.trail_page import trail_page
from sessions.requests.review_functions import ask_review
from sessions.run.run_layout import REVIEWS
from specs.trail.requested_review import QuestionRequest
from testing.factories.bodies import append_json

HOSTILE = (
    "</pre></title>\"'><script>alert(1)</script><img src=https://e.example/x onerror=alert(1)>{{7*7}}\u001b[31m\u202e"
)
LISTED = """
html head meta title style body h1 h2 p strong code nav a ol li span div table thead tbody tr th td br details summary
pre header ul dl dt dd svg line rect polyline text
figure figcaption section q
"""
TAGS = set(LISTED.split())
ATTRIBUTES = {
    "tabindex",
    "scope",
    "lang",
    "charset",
    "http-equiv",
    "content",
    "name",
    "class",
    "id",
    "href",
    "open",
} | {
    *("role", "aria-label", "data-name", "viewbox", "preserveaspectratio", "vector-effect"),
    *("x", "y", "x1", "x2", "y1", "y2", "width", "height", "points", "text-anchor"),
}


class Page(HTMLParser):
    """Reads a page as a browser does, and keeps what matters."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attrs}
        self.links += [str(value) for name, value in attrs if name in ("href", "src")]
        self.ids += [str(value) for name, value in attrs if name == "id"]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(text: str) -> Page:
    """Read a page, which is well-formed, loads nothing and has nothing in it but what its template has."""
    page = Page(text)
    assert (
        text.startswith("<!doctype html>\n")
        and page.open == []
        and set(page.tags) <= TAGS
        and page.attributes <= ATTRIBUTES
    )
    assert all(link.startswith("#") for link in page.links) and {link[1:] for link in page.links} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert "default-src 'none'" in text and "http:" not in text and "https:" not in text.replace("src=https:", "")
    return page


class Spoiled(Store):
    """A store whose every value holds hostile text."""

    def get(self, digest: str) -> bytes:
        try:
            return json.dumps(spoiled(json.loads(super().get(digest)))).encode()
        except ValueError:
            return HOSTILE.encode()


def spoiled(value: Any) -> Any:
    if isinstance(value, dict):
        return {f"{name}": spoiled(item) for name, item in value.items()} | {HOSTILE: HOSTILE}
    if isinstance(value, list):
        return [*map(spoiled, value), HOSTILE]
    return f"{value}{HOSTILE}" if isinstance(value, str) and not value.startswith("sha256:") else value


@pytest.fixture(scope="module")
def trails(
    closed_quick: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[tuple[list[RecordedEntry], Store]]]:
    """A session, and a folder of requested reviews."""
    folder = tmp_path_factory.mktemp("paged")
    run = shutil.copytree(closed_quick.parent, folder / "runs") / closed_quick.name
    question = QuestionRequest(topic="log level", question="Which log level?", kind="trivial")
    path = ask_review(question, ConsultContext(runs=folder / "runs")).folder
    yield [
        (read_entries(run / "trail.sqlite"), Store(run / "store")),
        (read_entries(path / REVIEWS), Store(path / "store")),
    ]


def test_the_page_states_the_trail_in_order_and_holds_every_entry(
    trails: list[tuple[list[RecordedEntry], Store]],
) -> None:
    for entries, store in trails:
        page = read(trail_page(History(entries, store)))
        ids = [int(word.removeprefix("entry-")) for word in page.ids if word.startswith("entry-")]
        assert ids == list(range(len(entries)))
        result = Page(trail_page(History(entries, store)).partition('<ol class="story">')[2].partition("</ol>")[0])
        story = [int(link.removeprefix("#entry-")) for link in result.links]
        assert story == sorted(story) and len(story) == result.tags["li"] > 1
    session = " ".join(Page(trail_page(History(*trails[0]))).text)
    for text in ("session registered by", "job small.tuned.1 launched", "tuned.1 approve", "close: approve", "Signs"):
        assert text in session
    assert "recommends: " in " ".join(Page(trail_page(History(*trails[1]))).text)


def test_the_page_has_the_transcript_and_what_every_number_is(
    trails: list[tuple[list[RecordedEntry], Store]], monkeypatch: pytest.MonkeyPatch
) -> None:
    entries, store = trails[0]
    text = trail_page(History(entries, store))
    _, _, transcript = text.partition('<h2 id="transcript">')
    calls = [entry for entry in entries if entry.kind == "call"]
    output = transcript.partition('<h2 id="entries">')[0]
    assert output.count("<strong>call</strong>") == len(calls) > 3 and "submit_stage" in output
    stages = text.partition('<h2 id="stages">')[2].partition('<section id="samples">')[0]
    assert "treatment accuracy - baseline accuracy" in stages and "accuracy_gain" in stages
    monkeypatch.setenv("SOME_API_KEY", "submit_stage")
    assert trail_page(History(entries, store)) == text
    monkeypatch.setattr(pages, "MOST_EVENTS", 5)
    assert "earlier events are left out here" in trail_page(History(entries, store))
    # Of requested reviews no one built anything.
    assert 'id="transcript"' not in trail_page(History(*trails[1]))


def test_a_value_that_several_entries_name_stands_there_once(trails: list[tuple[list[RecordedEntry], Store]]) -> None:
    entries, store = trails[0]
    text = trail_page(History(entries, store))
    digest = next(entry.raw["packet"] for entry in entries if entry.key == "packet/tuned.1")
    number = next(entry.seq for entry in entries if entry.key == "packet/tuned.1")
    assert text.count(f"<summary>packet <code>{digest}</code></summary>") == 1
    assert text.count(f'<code>{digest}</code>: shown with entry <a href="#entry-{number}">') == 1


def test_hostile_text_in_every_field_is_text(trails: list[tuple[list[RecordedEntry], Store]]) -> None:
    for entries, store in trails:
        bodies = [
            replace(entry, entry=entry.entry.model_copy(update={"body": spoiled(entry.raw)})) for entry in entries
        ]
        names = [
            replace(
                entry,
                entry=entry.entry.model_copy(
                    update={name: f"{getattr(entry.entry, name)}{HOSTILE}" for name in ("kind", "key", "session")}
                ),
            )
            for entry in entries
        ]
        for changed in (bodies, names):
            text = trail_page(History(changed, Spoiled(store.root)))
            page = read(text)
            assert "<script>alert(1)</script>" in "".join(page.text)
            assert "\u001b" not in text and "\u202e" not in text and "{{7*7}}" in text
            assert page.tags["script"] == page.tags["img"] == 0


def test_a_long_trail_has_a_page_that_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trail = Trail(tmp_path / "runs" / "long" / "trail.sqlite", "long")
    append_json(trail, "workspace", "workspace", {})
    with trail.alone():
        for number in range(1, 600):
            append_json(trail, "pause", f"pause/{number}", {"by": "ada"})
    trail.close()
    entries, store = read_entries(trail.path), Store(tmp_path / "store")
    assert len(read(trail_page(History(entries, store))).ids) == 5 + 600
    monkeypatch.setattr(pages, "MOST_ENTRIES", 100)
    # No entry tells more than another here: the newest are shown, in order, and how many are not.
    text = trail_page(History(entries, store))
    ids = [word for word in read(text).ids if word.startswith("entry-")]
    assert ids == [f"entry-{number}" for number in range(500, 600)]
    assert "500 of 600 entries are left out here" in text


def test_what_the_store_lacks_or_the_page_has_no_room_for_is_said(
    trails: list[tuple[list[RecordedEntry], Store]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    entries, store = trails[0]
    assert "not in the content store" in trail_page(History(entries, Store(tmp_path)))
    monkeypatch.setattr(pages, "MOST_EVIDENCE", 1000)
    text = trail_page(History(entries, store))
    assert "left out here: file store/" in text and len(text) < 300_000
