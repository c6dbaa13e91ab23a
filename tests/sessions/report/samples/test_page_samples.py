"""Samples on the page of an export: grouped, bounded, text alone, and compared when the export is verified."""

from __future__ import annotations

from pathlib import Path

import pytest

from reviews.audit.export import PAGE, export_run
from reviews.history.history import History
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.pages.report.samples import page_samples as on_page
from sessions.pages.report.trail_page import page_damage, trail_page
from sessions.pages.trail_place import TrailPlace
from specs.system.errors import EvidenceMissing
from testing.fixtures.hostile_trail import plant, small_trail
from testing.fixtures.quick_session import N
from tests.sessions.report.test_trail_page import HOSTILE, Page, read


def page_of(run: Path) -> str:
    return trail_page(History(read_entries(run / "trail.sqlite"), Store(run / "store")))


def samples_in(page: str) -> str:
    return page.partition('<section id="samples">')[2].partition("</section>")[0]


@pytest.fixture(scope="module")
def exported(closed_quick: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "shared"
    export_run(closed_quick, "trail.sqlite", "store", folder, trail_page)
    return folder


def test_every_item_is_on_the_page_with_prompt_answers_and_verdicts(closed_quick: Path) -> None:
    page = page_of(closed_quick)
    read(page)
    words = " ".join(Page(samples_in(page)).text)
    assert f"{N} held-out items, answered by base and tuned" in words
    assert "gained: wrong before, right after" in words and "left out" not in words
    made = on_page.page_samples(History(read_entries(closed_quick / "trail.sqlite"), Store(closed_quick / "store")))
    assert made is not None
    rows = [row for group in made["groups"] for row in group["rows"]]
    assert len(rows) == N and [answer["name"] for answer in rows[0]["answers"]] == ["before", "after"]
    for row in rows:
        assert row["prompt"] in words and all(answer["text"] in words for answer in row["answers"])


def test_a_group_is_bounded_and_says_how_many_are_left_out(closed_quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_page, "MOST_OF_A_GROUP", 5)
    made = on_page.page_samples(History(read_entries(closed_quick / "trail.sqlite"), Store(closed_quick / "store")))
    assert made is not None
    for group in made["groups"]:
        assert len(group["rows"]) <= 5 and len(group["rows"]) + group["left_out"] == group["count"]
    rest = max(group["left_out"] for group in made["groups"])
    assert rest > 0 and f"({rest} of them left out here)" in page_of(closed_quick)


def test_hostile_answers_are_text_and_long_ones_are_cut(tmp_path: Path) -> None:
    run = plant(small_trail(tmp_path), tmp_path / "planted", HOSTILE + "x" * 5_000)
    page = samples_in(page_of(run))
    result = Page(page)
    assert result.tags["script"] == result.tags["img"] == 0 and "<script>alert(1)</script>" in "".join(result.text)
    assert "\u202e" not in page and "\u001b" not in page and "characters left out]" in page
    assert len(page) < 200_000


def test_a_page_whose_samples_were_changed_is_damage(exported: Path) -> None:
    path = exported / PAGE
    there = path.read_text(encoding="utf-8")
    notes: list[str] = []
    assert page_damage(exported, notes) == notes == []
    try:
        path.write_text(there.replace('class="met">right', 'class="unmet">wrong', 1), encoding="utf-8")
        assert page_damage(exported, notes) == ["report.html: does not show these entries"] and notes == []
    finally:
        path.write_text(there, encoding="utf-8")


def test_samples_that_cannot_be_judged_here_are_noted_and_the_rest_is_compared(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_here(*_: object) -> None:
        raise EvidenceMissing("the verifier is not installed")

    monkeypatch.setattr(on_page, "samples_of", not_here)
    notes: list[str] = []
    assert page_damage(exported, notes) == [] and "not compared" in notes[0]
    path = exported / PAGE
    there = path.read_text(encoding="utf-8")
    try:
        path.write_text(there.replace("Accepted", "Rejected", 1), encoding="utf-8")
        assert page_damage(exported, notes) == ["report.html: does not show these entries"]
    finally:
        path.write_text(there, encoding="utf-8")


def test_a_page_that_was_made_without_samples_is_noted(exported: Path) -> None:
    path = exported / PAGE
    there = path.read_text(encoding="utf-8")
    entries, store = TrailPlace(exported, exported).history(), Store(exported / "store")
    notes: list[str] = []
    try:
        path.write_text(trail_page(History(entries, store), with_samples=False), encoding="utf-8")
        assert page_damage(exported, notes) == [] and "has no samples" in notes[0]
    finally:
        path.write_text(there, encoding="utf-8")
