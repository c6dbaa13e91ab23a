"""The pages in a real browser: clicked through, live, by keyboard, under their own policy, at two widths."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from reviews.trail.tables.open_table import read_entries
from sessions.jobs.launcher import JobState, job_folder
from sessions.pages.report.samples.judged_samples import Samples
from sessions.pages.view import samples
from sessions.pages.view.places import Scope
from sessions.pages.view.server import LOOKS_EVERY_S
from specs.jobs.job_records import JobOrder
from testing.fixtures.browser import CHROMIUM, MISSING, Browser, NavigatedError, Page, browser
from testing.fixtures.quick_session import N, QuickLauncher, drive, open_quick, quick_session
from testing.fixtures.view_client import served
from tests.sessions.report.test_page_in_browser import Refuses
from tests.sessions.view.test_view_pages import damaged

pytestmark = [pytest.mark.integration, pytest.mark.skipif(CHROMIUM is None, reason=MISSING)]

WIDE, NARROW = (1280, 900), (390, 800)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def workspace(closed_quick: Path, hostile: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sessions of every state: accepted, rejected, waiting with hostile texts, damaged."""
    folder = tmp_path_factory.mktemp("workspace")
    run = open_quick(folder, name="rejected")
    drive(quick_session(run, reviewer=Refuses()))
    shutil.copytree(closed_quick, run.parent / "accepted")
    shutil.copytree(hostile, run.parent / "waiting")
    broken = damaged(closed_quick, tmp_path_factory.mktemp("damaged"))
    shutil.copytree(broken, run.parent / "damaged")
    return run.parent


@pytest.fixture(scope="module")
def address(workspace: Path) -> Iterator[str]:
    with served(Scope(workspace)) as bound:
        yield bound.address()


@pytest.fixture
def page(chromium: Browser, address: str) -> Page:
    opened = chromium.page()
    opened.look(*WIDE)
    opened.open(address)
    return opened


def unharmed(page: Page, address: str) -> None:
    """Nothing failed, nothing was forbidden, and nothing outside of this server was asked for."""
    base = address.partition("/enter/")[0]
    assert page.faults == []
    assert [text for text in page.requests if not text.startswith(base)] == []


def test_a_person_clicks_from_the_list_to_the_rows_of_a_number(page: Page, address: str) -> None:
    assert "/enter/" not in page.run("location.href")
    page.until("document.querySelector('[data-name=accepted] [data-effect]').textContent.startsWith('+1.000')")
    page.follow("[data-name=accepted] a")
    assert "Accepted" in page.text() and "+1.000" in page.text()
    page.follow("#effect a")
    assert "accuracy_gain = 1" in page.text()
    page.follow("a[href*='/rows/'][href*='line=2']")
    assert page.run("document.querySelectorAll('li.marked').length") == 1
    for link, words in (
        ("Trail", "Signatures, order and tree hold"),
        ("Transcript", "launch_stage"),
        ("Samples", "lowercase"),
    ):
        page.follow(f"nav[aria-label='Pages of the session'] a[href$='{link.lower()}']")
        page.until(f"document.body.innerText.includes({json.dumps(words)})")
    unharmed(page, address)


def test_the_list_is_searched_filtered_and_sorted(page: Page, address: str) -> None:
    page.until("document.querySelector('[data-name=rejected] [data-money]').textContent")
    text = (
        "[...document.querySelectorAll('#sessions tbody tr')].filter(row => !row.hidden).map(row => row.dataset.name)"
    )
    assert page.run(text) == ["accepted", "damaged", "rejected", "waiting"]
    page.type("#search", "rejec")
    assert page.run(text) == ["rejected"]
    page.type("#search", "")
    page.run("document.querySelector('#state').value = 'waiting'")
    page.run("document.querySelector('#state').dispatchEvent(new Event('change'))")
    assert page.run(text) == ["waiting"]
    page.run("document.querySelector('#state').value = 'damaged'")
    page.run("document.querySelector('#state').dispatchEvent(new Event('change'))")
    page.until("document.querySelector('[data-name=damaged]').dataset.state === 'damaged'")
    page.until(f"JSON.stringify({text}) === '[\"damaged\"]'")
    page.run("document.querySelector('#state').value = ''")
    page.run("document.querySelector('#state').dispatchEvent(new Event('change'))")
    page.click("#sessions th:nth-child(1) button")
    page.click("#sessions th:nth-child(1) button")
    assert page.run(text) == ["waiting", "rejected", "damaged", "accepted"]
    assert page.run("document.querySelector('#sessions th').getAttribute('aria-sort')") == "descending"
    unharmed(page, address)


def test_a_hundred_thousand_samples_are_scrolled(
    chromium: Browser, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def many(*values: Any) -> Samples:
        few = judged(*values)
        rows = [few.rows[place % N]._replace(number=place + 1) for place in range(100_000)]
        return few._replace(rows=tuple(rows))

    judged = samples.samples_of
    monkeypatch.setattr(samples, "samples_of", many)
    # A server that has judged nothing yet.
    with served(Scope(workspace)) as bound:
        scroll(chromium.page(), bound.address("s/accepted/samples"))


def scroll(page: Page, address: str) -> None:
    page.look(*WIDE)
    page.open(address)
    page.until("document.querySelector('#matches').textContent === '100000 items'")
    seen = (
        "[...document.querySelectorAll('#list .row')].filter(row => { const box = row.getBoundingClientRect(), list ="
    )
    seen += "document.querySelector('#list').getBoundingClientRect(); return box.bottom > list.top && box.top <"
    seen += "list.bottom; }).map(one => Number(one.id.slice(4)))"
    page.press("End")
    page.until(f"{seen}.includes(99999)")
    page.press("k")
    page.until("document.querySelector('#list .current')?.id === 'row-99998'")
    page.run("(() => { const list = document.querySelector('#list'); list.scrollTop = list.scrollHeight / 2; })()")
    page.until(f"{seen}.some(one => one > 49900 && one < 50100)")
    middle = page.run(seen)
    assert middle == list(range(middle[0], middle[0] + len(middle)))
    assert page.run("document.querySelectorAll('#list .row').length") < 40
    page.press("Home")
    page.until(f"{seen}[0] === 0")
    unharmed(page, address)


def test_a_gate_leads_to_the_very_place_a_finding_names(page: Page, address: str) -> None:
    page.follow("[data-name=rejected] a")
    assert "Rejected" in page.text()
    page.follow("#gates a[href$='gate/tuned/1']")
    assert "the test does not fit the design" in page.text() and "Review by checklist" in page.text()
    page.follow("a[href*='at=%2Fstage']")
    assert page.run("[...document.querySelectorAll('li.marked')].map(one => one.textContent.trim())") == [
        '"stage": "tuned",'
    ]
    unharmed(page, address)


def test_samples_are_chosen_by_keyboard_and_opened(page: Page, address: str) -> None:
    page.open(address.partition("/enter/")[0] + "/s/accepted/samples")
    page.until("document.querySelectorAll('#list .row').length >= 5")
    page.press("j")
    page.press("j")
    assert page.run("document.querySelector('#list .current').id") == "row-1"
    page.run("document.querySelector('#list').focus()")
    page.press("Enter")
    page.until(
        "document.querySelector('dialog').open && document.querySelector('[data-field=number]').textContent === '2'"
    )
    assert "This Is A Wrong Answer" in page.run("document.querySelector('pre[data-field=before]').textContent")
    page.press("j")
    page.until("document.querySelector('[data-field=number]').textContent === '3'")
    page.press("Escape")
    page.until("!document.querySelector('dialog').open")
    page.click("button[data-show=lost]")
    page.until("document.querySelector('#matches').textContent === '0 items'")
    page.click("button[data-show=gained]")
    page.press("/")
    page.call("Input.insertText", text="oak")
    page.until("document.querySelector('#matches').textContent === '1 item'")
    unharmed(page, address)


def test_hostile_texts_are_seen_and_do_nothing(page: Page, address: str) -> None:
    base = address.partition("/enter/")[0]
    for path in ("", "samples", "transcript", "trail", "gate/tuned/1", "gate/train/1"):
        page.open(f"{base}/s/waiting/{path}")
        page.until("document.readyState === 'complete'")
        planted = "document.querySelectorAll('script:not([src]), img, main [style]:not(#list *)').length"
        assert page.run(planted) == 0
    page.open(f"{base}/s/waiting/samples")
    page.until("document.querySelectorAll('#list .row').length >= 5")
    page.click("#row-0")
    page.until("document.querySelector('dialog').open")
    assert "<script>alert(1)</script>" in page.run("document.querySelector('pre[data-field=before]').textContent")
    unharmed(page, address)


def test_a_damaged_trail_is_seen_at_once(page: Page, address: str) -> None:
    page.until("document.querySelector('[data-name=damaged]').dataset.state === 'damaged'")
    assert "says Accepted" in page.run("document.querySelector('[data-name=damaged]').innerText")
    assert page.run("document.querySelector('[data-name=accepted]').dataset.state") == "closed"
    page.follow("[data-name=damaged] a")
    assert page.run("document.querySelector('[role=alert]').getBoundingClientRect().top") < 200
    page.follow("[role=alert] a")
    assert "Damaged" in page.text() and "entry 5" in page.text()
    unharmed(page, address)


MEASURE = (Path(__file__).parents[2] / "fixtures" / "page_faults.js").read_text(encoding="utf-8")
SOUND = {"beyond": [], "faint": [], "nameless": [], "twice": [], "wide": False, "headings": 1, "language": "en"}
PATHS = ("/", "/s/accepted/", "/s/accepted/samples", "/s/accepted/transcript", "/s/waiting/", "/s/waiting/gate/tuned/1")
MORE = (
    "/s/rejected/gate/tuned/1",
    "/s/waiting/trail",
    "/s/damaged/",
    "/s/accepted/number/tuned/1/accuracy",
    "/s/none/",
)


def check_looks(page: Page, base: str, paths: tuple[str, ...]) -> None:
    for path in paths:
        page.open(f"{base}{path}")
        page.run("document.querySelectorAll('details').forEach(one => one.open = true)")
        for size in (WIDE, NARROW):
            for dark in (False, True):
                page.look(*size, dark=dark)
                assert page.run(MEASURE) == SOUND, (path, size, dark)


def test_pages_can_be_read_and_named_at_both_widths_in_both_schemes(page: Page, address: str) -> None:
    check_looks(page, address.partition("/enter/")[0], PATHS)


@pytest.mark.slow
def test_the_other_pages_can_be_read_and_named_too(page: Page, address: str) -> None:
    check_looks(page, address.partition("/enter/")[0], MORE)


def test_the_control_what_cannot_be_read_or_named_is_found(page: Page, address: str) -> None:
    page.run(
        "document.querySelector('h1').style.color = 'rgb(200, 200, 200)';"
        "document.querySelector('#state').removeAttribute('aria-label');"
        "document.querySelector('#state').textContent = '';"
        "document.querySelector('table').style.width = '3000px'"
    )
    result = page.run(MEASURE)
    assert result["wide"] and result["faint"] and result["nameless"] and result["beyond"]


def test_the_control_a_script_in_a_page_is_forbidden_and_found(page: Page, address: str) -> None:
    page.run(
        "{ const script = document.createElement('script'); script.textContent = 'window.harm = 1';"
        "document.body.append(script); }"
    )
    page.run("fetch('https://e.example/').catch(() => 0)")
    assert page.run("window.harm === undefined")
    assert any("Content Security Policy" in fault for fault in page.faults)


class Slow(QuickLauncher):
    """A launcher whose training job says how far it is, and ends when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.done, self.end, self.runs = 0, threading.Event(), threading.Event()

    def poll(self, folder: Path) -> JobState:
        order = JobOrder.model_validate_json((folder / "order.json").read_bytes())
        if order.kind != "sft" or order.challenge is not None:
            return super().poll(folder)
        self.runs.set()
        if self.end.is_set():
            return super().poll(folder)
        return JobState("running")


def say_progress(run: Path, done: int) -> None:
    with (job_folder(run, "live.train.1") / "progress.jsonl").open("a", encoding="utf-8") as file:
        note = {"loss": 2.0 / (1 + done), "learning_rate": 1e-4 / (1 + done)}
        line = {"time": time.time(), "done": done, "total": 40, "unit": "steps", "note": note}
        file.write(json.dumps(line) + "\n")


def test_a_running_session_is_followed_to_its_end(chromium: Browser, tmp_path: Path) -> None:
    run = open_quick(tmp_path, name="live")
    launcher = Slow()
    with ThreadPoolExecutor(1) as beside:
        seen = beside.submit(follow, chromium, run, launcher)
        drive(quick_session(run, launcher=launcher))
        seen.result()
    assert read_entries(run / "trail.sqlite")[-1].raw["decision"] == "approve"


def follow(chromium: Browser, run: Path, launcher: Slow) -> None:
    """Look on while a session trains; its job ends however this ends."""
    try:
        assert launcher.runs.wait(120)
        say_progress(run, 1)
        with served(Scope(run.parent)) as bound:
            page = chromium.page()
            page.look(*WIDE)
            page.open(bound.address("s/live/"))
            page.until("document.querySelector('.badge').textContent === 'running'")
            page.until("document.querySelector('#done')?.textContent === '1'")
            for done in (5, 10):
                say_progress(run, done)
                page.until(f"document.querySelector('#done').textContent === '{done}'")
            assert "left" in page.run("document.querySelector('#job').innerText")
            assert page.run("document.querySelectorAll('#job svg polyline').length") == 2
            assert page.run("document.querySelector('#busy').textContent") == "the job of train.1"
            launcher.end.set()
            page.until("document.querySelector('h1').textContent === 'Accepted'")
            page.until("document.querySelector('.badge').textContent === 'closed'")
            assert page.run("document.querySelector('[role=alert]')") is None
            assert page.run("document.querySelector('#job').innerText.trim()") == ""
            unharmed(page, bound.address())
    finally:
        launcher.end.set()


LISTEN = """
window.heard = new Set();
const own = new URL(document.body.dataset.events, location).searchParams.get("seen");
for (const [name, seen] of [["own", own], ["older", "1"]]) {
  const source = new EventSource(`${location.pathname}events?seen=${seen}`);
  for (const event of ["there", "changed"]) source.addEventListener(event, () => heard.add(`${name} ${event}`));
}"""


def test_what_changed_while_a_page_was_on_its_way_is_said_when_it_listens(page: Page, address: str) -> None:
    for path in ("/", "/s/accepted/"):
        page.open(address.partition("/enter/")[0] + path)
        page.run(LISTEN)
        page.until("heard.has('older changed') && heard.has('own there')")
        time.sleep(2 * LOOKS_EVERY_S)
        assert not page.run("heard.has('own changed')")


def test_a_stream_continues_when_the_server_comes_back(chromium: Browser, closed_quick: Path) -> None:
    with served(Scope(closed_quick.parent)) as bound:
        page = chromium.page()
        page.open(bound.address())
        page.until("document.querySelector('#stream').textContent === 'live'")
    page.until("document.querySelector('#stream').textContent.startsWith('no connection')")
    assert len(page.run("document.querySelector('#sessions tbody').innerText")) > len(str(N))


def test_a_file_leads_a_browser_in(chromium: Browser, closed_quick: Path) -> None:
    """As `--open` does it: from another site, whose way in a strict cookie must not stop."""
    with served(Scope(closed_quick.parent)) as bound, bound.door("s/small/") as door:
        file = Path(door.removeprefix("file://"))
        assert file.parent.stat().st_mode & 0o777 == 0o700 and bound.access.token not in door
        page = chromium.page()
        page.call("Page.navigate", url=door)
        page.until("document.querySelector('h1')?.textContent === 'Accepted'")
        assert bound.access.token not in page.run("location.href + document.referrer")
    assert not file.exists()


def test_a_condition_is_evaluated_again_on_the_page_that_comes_next(chromium: Browser, tmp_path: Path) -> None:
    script = "new Promise(done => setTimeout(() => done(document.title === 'second'), 900))"
    first, second = tmp_path / "first.html", tmp_path / "second.html"
    first.write_text(f"<script>setTimeout(() => location.replace('{second.as_uri()}'), 300)</script>")
    second.write_text("<title>second</title>")
    page = chromium.page()
    page.call("Page.navigate", url=first.as_uri())
    with pytest.raises(NavigatedError):
        page.run(script)
    page.call("Page.navigate", url=first.as_uri())
    assert page.until(script)
