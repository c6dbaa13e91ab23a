"""The page of an export in a real browser: the result is seen first, columns can be read, nothing runs off the side."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reviews.history.history import History
from reviews.reviewers.checklist import Checklist
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.pages.report.trail_page import trail_page
from specs.trail.entry import DESIGN
from specs.trail.verdict import Finding, Packet, Span, Verdict
from testing.fixtures.hostile_trail import plant, small_trail
from testing.fixtures.quick_session import QuickLauncher, drive, open_quick, quick_session, rows_with

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
WIDE, NARROW, FOLD = 1280, 390, 900
LEAST_COLUMN = 40
"""Pixels; two letters are 15."""
SCHEMES = ("light", "dark")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: the page was seen in no browser"),
]

MEASURE = """
let left = views.length;
const frames = views.map(([page, width, scheme]) => {
  const frame = document.createElement('iframe');
  frame.style = `border: 0; height: 900px; width: ${width}px; color-scheme: ${scheme}`;
  frame.dataset.page = page;
  frame.dataset.scheme = scheme;
  frame.onload = () => --left || measure();
  frame.srcdoc = shown[page];
  return frame;
});
document.body.append(...frames);
function measure() {
  const found = frames.map(frame => {
    const page = frame.contentDocument, view = frame.contentWindow, width = view.innerWidth;
    const box = part => part ? part.getBoundingClientRect().toJSON() : null;
    const all = [...page.querySelectorAll('body *')];
    const rows = [...page.querySelectorAll('#gates + table.gates > tbody > tr')];
    const style = part => { const s = view.getComputedStyle(part); return [s.color, s.backgroundColor]; };
    return {
      page: frame.dataset.page, scheme: frame.dataset.scheme, width, scrollWidth: page.documentElement.scrollWidth,
      beyond: all.filter(part => box(part).right > width + 1).map(part => part.outerHTML.slice(0, 80)).slice(0, 5),
      headline: box(page.querySelector('#result h1')), sentence: box(page.querySelector('#result h1 + p')),
      effect: box(page.querySelector('#effect')), gates: box(page.querySelector('#gates')),
      cells: rows.map(row => [...row.cells].map(cell => box(cell).width)),
      head: page.querySelector('#result').innerText,
      colours: [page.body, ...page.querySelectorAll('#result strong, td[class], .quiet, a')].map(style),
    };
  });
  document.getElementById('measured').textContent = JSON.stringify(found);
}
"""


Measured = dict[tuple[int, str], dict[str, Any]]


def measured(pages: dict[str, str], folder: Path) -> dict[str, Measured]:
    """Open pages in the browser, at both widths and in both colour schemes, and return what was measured of each."""
    # In the copy only: the page itself forbids scripts.
    csp = r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>"
    fields = {name: re.sub(csp, "", page, count=1) for name, page in pages.items()}
    views = [(name, width, scheme) for name in pages for width in (WIDE, NARROW) for scheme in SCHEMES]
    text = f"const views = {json.dumps(views)}, shown = {json.dumps(fields).replace('</', '<' + chr(92) + '/')};"
    wrapper = folder / "wrapper.html"
    body = f'<body><pre id="measured"></pre><script>{text}{MEASURE}</script>'
    wrapper.write_text(f'<!doctype html><meta charset="utf-8">{body}', encoding="utf-8")
    assert CHROMIUM is not None
    where = (f"--user-data-dir={folder / 'profile'}", "--window-size=1400,1000", "--virtual-time-budget=60000")
    command = [CHROMIUM, *QUIET, *where, "--dump-dom", wrapper.as_uri()]
    for _ in range(3):
        # On a machine under load the browser may print the page before its frames are there.
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        match_object = re.search(r'<pre id="measured">(.+?)</pre>', done.stdout, re.DOTALL)
        if match_object is not None:
            break
    else:
        raise AssertionError("the browser did not measure the page")
    measurements: dict[str, Measured] = {name: {} for name in pages}
    for load in json.loads(html.unescape(match_object[1])):
        measurements[load["page"]][load["width"], load["scheme"]] = load
    return measurements


def wrong_with(results: dict[str, Any]) -> list[str]:
    """Return what a person would see amiss in a page."""
    lines = [f"runs off the side: {item}" for item in results["beyond"]]
    if results["scrollWidth"] > results["width"]:
        lines.append(f"{results['scrollWidth']} px wide in a window of {results['width']}")
    lines += [f"{name} is below the fold" for name in ("headline", "sentence") if results[name]["bottom"] > FOLD]
    if results["width"] == WIDE:
        lines += [f"{name} begins below the fold" for name in ("effect", "gates") if results[name]["top"] > FOLD]
        columns = [min(cells) for cells in results["cells"]]
        reasons = [cells[3] for cells in results["cells"]]
        lines += ["a column is two letters wide"] if min(columns) < LEAST_COLUMN or min(reasons) < 250 else []
    elif min(min(cells) for cells in results["cells"]) < results["width"] * 0.8:
        lines.append("a cell is narrow where each should have a line of its own")
    faint = [pair for pair in results["colours"] if _contrast(pair[0], pair[1], results["colours"][0][1]) < 4.5]
    lines += [f"{front} on {back} cannot be read" for front, back in faint]
    return lines


def _contrast(front: str, back: str, page: str) -> float:
    """Return the contrast of two colours as WCAG defines it; what has no background has that of the page."""
    text = page if back.startswith("rgba(0, 0, 0, 0") else back
    light, dark = sorted((_luminance(front), _luminance(text)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(text) / 255 for text in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


class Unwilling(Checklist):
    """Judges the design and does not approve it."""

    def review(self, packet: Packet, packet_digest: str) -> Verdict:
        """Approve nothing of the design."""
        return super().review(packet, packet_digest).model_copy(update={"approve": packet.stage != DESIGN})


class Refuses:
    """A reviewer that finds at the evaluation what nothing would mend."""

    name = "checklist"

    def review(self, packet: Packet, packet_digest: str) -> Verdict:
        """Approve by the rules, but not the treatment."""
        verdict = Checklist().review(packet, packet_digest)
        if packet.stage != "tuned":
            return verdict
        place = Span(artifact=packet_digest, pointer="/stage")
        finding = Finding(id="f", severity="blocking", statement="the test does not fit the design", evidence=(place,))
        return verdict.model_copy(update={"findings": (finding,), "approve": False})


def page_of(run: Path) -> str:
    return trail_page(History(read_entries(run / "trail.sqlite"), Store(run / "store")))


def ended(folder: Path, **parts: Any) -> str:
    run = open_quick(folder)
    drive(quick_session(run, **parts))
    return page_of(run)


def accepted(folder: Path) -> str:
    return ended(folder)


def overridden(folder: Path) -> str:
    """A session whose goal was reached over a gate that someone lifted."""
    run = open_quick(folder)
    drive(quick_session(run, reviewer=Unwilling()))
    drive(quick_session(run), {"answer": "approve", "reason": "I know the design", "by": "ada", "expires": None})
    return page_of(run)


def null(folder: Path) -> str:
    return ended(folder, launcher=QuickLauncher(rows_with(0)))


def rejected(folder: Path) -> str:
    return ended(folder, reviewer=Refuses())


def waiting(folder: Path) -> str:
    return page_of(small_trail(folder))


def hostile(folder: Path) -> str:
    """A page whose every text is one word of a thousand letters."""
    return page_of(plant(small_trail(folder), folder / "planted", "x" * 1000))


PAGES: dict[str, tuple[Callable[[Path], str], tuple[str, ...]]] = {
    "accepted": (accepted, ("Accepted", "gain +1.000")),
    "overridden": (
        overridden,
        ("Not accepted: a person lifted a gate or check", "ada answered 'approve' at design.1", "I know the design"),
    ),
    "null": (null, ("Null result", "no significant difference")),
    "rejected": (rejected, ("Rejected", "rejected at the gate of 'tuned'", "the test does not fit the design")),
    "waiting": (
        waiting,
        ("Waiting for a person", "the gate of 'tuned' stays closed", "points at nothing in the packet"),
    ),
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Measured]:
    """What was measured of the pages of every run: the browser takes seconds to start, and shows them all at once."""
    page = accepted(tmp_path_factory.mktemp("accepted"))
    # The style of before: columns two letters wide, and no result above the fold.
    style = "td, th { white-space: normal !important; overflow-wrap: anywhere; min-width: 0 !important; padding: 0 }"
    style += "td.text { width: 1200px; white-space: nowrap !important }"
    pages = {
        "accepted": page,
        "long words": hostile(tmp_path_factory.mktemp("hostile")),
        "broken words": page.replace("</style>", f"{style}</style>", 1),
        "below": page.replace('<header id="result">', '<header id="result" style="margin-top: 60rem">', 1),
    }
    return measured(pages, tmp_path_factory.mktemp("pages"))


def check_page(result: Measured, messages: tuple[str, ...]) -> None:
    assert sorted(result) == sorted((width, scheme) for width in (WIDE, NARROW) for scheme in SCHEMES)
    for at, row in result.items():
        assert wrong_with(row) == [], at
        assert all(words in row["head"] for words in messages), row["head"]
    assert result[WIDE, "dark"]["colours"][0] != result[WIDE, "light"]["colours"][0]


def test_the_result_is_seen_first_and_everything_can_be_read(seen: dict[str, Measured]) -> None:
    check_page(seen["accepted"], PAGES["accepted"][1])


@pytest.mark.slow
def test_the_other_results_are_seen_first_too(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    others = {name: make(tmp_path_factory.mktemp(name)) for name, (make, _) in PAGES.items() if name != "accepted"}
    for name, item in measured(others, tmp_path).items():
        check_page(item, PAGES[name][1])


def test_a_page_of_long_words_keeps_its_columns(seen: dict[str, Measured]) -> None:
    for at, row in seen["long words"].items():
        lines = [problem for problem in wrong_with(row) if "fold" not in problem]
        assert lines == [], at


def test_the_control_a_table_that_breaks_words_anywhere_is_found(seen: dict[str, Measured]) -> None:
    assert "a column is two letters wide" in wrong_with(seen["broken words"][WIDE, "light"])
    assert "headline is below the fold" in wrong_with(seen["below"][NARROW, "dark"])
