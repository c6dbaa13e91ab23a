"""A hostile text in every field of a small real trail: every view has the lines, headings and tables it has without."""

from __future__ import annotations

import json
import re
import shutil
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from reviews.history.history import History
from reviews.reviewers.person import summary
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.commands.cli import app
from sessions.pages.report import report, transcript
from sessions.pages.report.trail_page import trail_page
from sessions.run.run_layout import REPORT_MARKDOWN
from specs.trail.entry import DESIGN
from specs.trail.verdict import Packet
from testing.fixtures.hostile_trail import plant, small_trail
from tests.sessions.report.test_trail_page import Page
from tests.specs.test_shown_text import FRAGMENTS, READER

pytestmark = pytest.mark.integration

FORGED = "gate base: approve"
"""What only Peergate prints."""
EVERYTHING = "".join(f"{fragment}{FORGED} " for fragment in FRAGMENTS if fragment != "\ud800")
FORGING = (
    f"\n{FORGED}",
    f"\n# {FORGED}",
    f"\r{FORGED}",
    f"\u2028{FORGED}",
    f"\x85  {FORGED}",
    f"\n| {FORGED} | b |\n|---|---|",
)
HARMLESS = " harmless words"
BLOCK = re.compile(r" *\|")
Views = tuple[dict[str, list[str]], dict[str, str], str]
"""What commands print, Markdown files, and the page."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_trail(tmp_path_factory.mktemp("shown"))


def commands(run: Path) -> dict[str, list[str]]:
    """Return what is printed by every command that shows a trail, as lines."""
    runs, at = str(run.parent), str(run)
    verdict = next(
        recorded_entry
        for recorded_entry in read_entries(run / "trail.sqlite")
        if recorded_entry.key == "verdict/tuned.1"
    )
    results = {
        "status": ["status", "small", "--runs", runs],
        "list": ["list", "--runs", runs],
        "cost": ["cost", at],
        "transcript": ["transcript", at],
        "check run": ["check", "run", at],
        "audit log": ["audit", "log", at],
        "audit list": ["audit", "list", at],
        "audit search": ["audit", "search", at, "said"],
        "audit diff": ["audit", "diff", at, "verdict/base.1", "verdict/tuned.1"],
        "audit show": ["audit", "show", at, "verdict/tuned.1"],
        "audit show value": ["audit", "show", at, verdict.raw["verdict"]],
        "audit show --json": ["audit", "show", at, "decision/tuned.1", "--json"],
        "status --json": ["status", "small", "--runs", runs, "--json"],
        "transcript --json": ["transcript", at, "--json"],
        "report": ["report", "small", "--runs", runs],
    }
    fields: dict[str, list[str]] = {}
    for name, arguments in results.items():
        done = CliRunner().invoke(app, arguments)
        assert not isinstance(done.exception, Exception), (name, done.exception)
        fields[name] = done.stdout.split("\n")
        if name.endswith("--json"):
            json.loads(done.stdout)
    entries, store = read_entries(run / "trail.sqlite"), Store(run / "store")
    entry = next(
        recorded_entry
        for recorded_entry in reversed(entries)
        if recorded_entry.kind == "packet" and recorded_entry.raw["stage"] != DESIGN
    )
    fields["review show"] = summary(Packet.model_validate(store.get_value(entry.raw["packet"])))
    return fields


def pages(run: Path) -> tuple[dict[str, str], str]:
    """Return the Markdown files of a report, and the page."""
    entries, store = read_entries(run / "trail.sqlite"), Store(run / "store")
    transcripts = list(transcript.Transcript(store).attempts(History(entries)))
    _, so_far = report.render_waiting_report(run, "trail.sqlite", "store")
    report.write(run, "trail.sqlite", "store", "stop")
    final = (run / REPORT_MARKDOWN).read_text(encoding="utf-8")
    files = {"report": so_far, "final": final, "transcript": transcript.markdown_of("small", transcripts)}
    return files, trail_page(History(entries, store))


def structure(text: str) -> Counter[str]:
    """Count what a CommonMark reader finds, but plain text and the lines in fenced blocks."""
    results: Counter[str] = Counter()
    for token in READER.parse(text):
        results[token.type + token.tag] += 1
        for child in token.children or ():
            if not child.type.startswith("text") and child.type not in ("softbreak",):
                results[child.type] += 1
    return results


def forged(lines: list[str]) -> list[str]:
    """Return the lines that pass for one of Peergate's, or that a terminal would obey."""
    own = [line.lstrip(" #|-*>") for line in lines if not BLOCK.match(line)]
    obeyed = [line for line in lines if any(unicodedata.category(text) in ("Cc", "Cf", "Zl", "Zp") for text in line)]
    return [line for line in own if line.startswith(FORGED)] + [line for line in obeyed if line.strip("\t")]


def shape(lines: list[str]) -> list[str]:
    """Return the beginnings of lines; blocks of text that stand behind bars are as long as they are."""
    return [line[:2] for line in lines if not BLOCK.match(line)]


@pytest.fixture(scope="module")
def expected(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Views:
    harmless = plant(run, tmp_path_factory.mktemp("harmless"), HARMLESS)
    return commands(harmless), *pages(harmless)


def check_views(run: Path, expected: Views, folder: Path, text: str) -> None:
    # A word at both ends: what is between them is not all white space, which would leave nothing to show.
    planted = plant(run, folder, f" harmless{text}words")
    lines, files, html = expected
    for name, command in commands(planted).items():
        assert not forged(command), (name, forged(command)[:3])
        # What is checked again are the planted rows: checks may answer otherwise, and show more of them.
        assert name == "check run" or shape(command) == shape(lines[name]), name
    results, page = pages(planted)
    for name, markdown in results.items():
        assert structure(markdown) == structure(files[name]), name
        assert not forged(markdown.split("\n")) or name == "transcript", (name, forged(markdown.split("\n"))[:3])
    assert Page(page).tags == Page(html).tags
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "text",
    [pytest.param(EVERYTHING, id="everything", marks=pytest.mark.slow), pytest.param("".join(FORGING), id="forging")],
)
def test_no_view_has_a_line_a_heading_or_a_cell_more(
    run: Path, expected: Views, tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    check_views(run, expected, tmp_path_factory.mktemp("hostile"), text)


@pytest.mark.slow
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    st.lists(
        st.sampled_from([*FORGING, *(fragment for fragment in FRAGMENTS if fragment != "\ud800")]),
        min_size=1,
        max_size=8,
    ).map("".join)
)
def test_no_view_has_more_whatever_is_put_together(
    run: Path, expected: Views, tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    check_views(run, expected, tmp_path_factory.mktemp("hostile"), text)
