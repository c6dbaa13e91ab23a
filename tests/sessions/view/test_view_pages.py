"""Every page of a finished, a rejected, a waiting, a hostile and a damaged session, without a browser."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.playbook import Playbook
from agents.workbench_protocol import Workbench
from reviews.gate.panel import ReviewPanel
from reviews.history.history import History
from reviews.reviewers.checklist import Checklist
from reviews.trail.anchors import read_anchor
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from reviews.trail.trail import Trail
from sessions.pages.report.page_result import page_result
from sessions.pages.report.samples.judged_samples import SELECTIONS
from sessions.pages.report.trail_page import trail_page
from sessions.pages.trail_place import TrailPlace
from sessions.pages.view import trail_state
from sessions.pages.view.places import Scope, TrailCache
from specs.jobs.grant_and_claim import Claim
from specs.jobs.job_records import JobOrder
from specs.system.vendors.conversation import ToolCall
from specs.trail.builder_tools import SubmitStage
from specs.trail.verdict import Finding, Packet, Span, Verdict
from testing.factories.bodies import append_json, body_of
from testing.fixtures.command_sessions import called
from testing.fixtures.hostile_trail import Critical, plant
from testing.fixtures.quick_session import N, QuickLauncher, drive, healthy_rows, open_quick, quick_session, rows_with
from testing.fixtures.view_client import Answer, Client

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def finished(closed_quick: Path) -> Client:
    return Client(Scope(closed_quick.parent))


def links(answer: Answer) -> set[str]:
    return {text for text in re.findall(r'href="(/[^"#]*)', answer.text) if not text.startswith("/static/")}


def every_page(client: Client, most: int = 400) -> Iterator[tuple[str, Answer]]:
    """Follow every link from the first page on."""
    results, waiting = set[str](), ["/"]
    while waiting and len(results) < most:
        address = waiting.pop(0)
        if address not in results:
            results.add(address)
            answer = client.get(address)
            yield address, answer
            # Entries and numbers are many and alike.
            waiting += sorted(links(answer) - results)


def test_every_link_leads_to_a_page(finished: Client) -> None:
    kinds: dict[str, int] = {}
    for address, answer in every_page(finished, 120):
        assert answer.status == 200, (address, answer.text)
        kind = address.split("/")[3].partition("?")[0] if address.startswith("/s/") else address
        kinds[kind] = kinds.get(kind, 0) + 1
    assert kinds.keys() >= {"/", "", "samples", "transcript", "trail", "entry", "gate", "number", "value"}, kinds
    assert kinds["gate"] == 6


def test_the_session_page_says_what_the_report_says(finished: Client, closed_quick: Path) -> None:
    read = TrailCache(Scope(closed_quick.parent)).read("small")
    report = page_result(read.history)
    assert report is not None and report["effect"] is not None
    page = finished.get("/s/small/").text
    assert '<strong class="approve">Accepted</strong>' in page
    assert (
        report["sentence"].removeprefix("accepted: ").replace(">", "&gt;").replace("<", "&lt;").replace("'", "&#39;")
        in page
    )
    for name in ("gain", "interval", "p", "gained", "lost"):
        assert report["effect"][name] in page
    row = finished.get("/sessions.json?name=small&name=none&name=../small").json()
    assert row["small"]["gain"] == report["effect"]["gain"] and row["none"] == {} == row["../small"]


def test_a_number_leads_to_its_definition_and_its_lines(finished: Client) -> None:
    page = finished.get("/s/small/number/tuned/1/accuracy_gain")
    assert "treatment accuracy - baseline accuracy" in page.text and "report.md line 1" in page.text
    rows = [link for link in links(page) if "/rows/" in link and "line=3" in link]
    text = finished.get(rows[0]).text
    assert text.count('class="marked"') == 1 and re.search(r'id="line-3" class="marked"', text)


def test_samples_are_filtered_searched_and_paged(finished: Client) -> None:
    def query_samples(query: str) -> dict[str, object]:
        return finished.get(f"/s/small/samples.json?{query}").json()

    assert query_samples("")["total"] == N == query_samples("show=gained")["total"]
    assert {name: query_samples(f"show={name}")["total"] for name in SELECTIONS} == {
        **{"all": N, "right": N, "wrong": 0, "gained": N, "lost": 0, "truncated": 0}
    }
    page = query_samples("from=3&count=2")
    assert [row["number"] for row in page["rows"]] == [4, 5]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
    assert query_samples("text=ELM")["total"] == 1 and query_samples("kind=none")["total"] == 0
    assert finished.get("/s/small/samples.json?show=x").status == 404
    whole = finished.get("/s/small/sample.json?number=1").json()
    assert whole["before_right"] is False and whole["after_right"] is True and whole["before_reason"]
    assert finished.get("/s/small/sample.json?number=0").status == 404
    assert query_samples("from=999999&count=999999")["rows"] == []


@pytest.mark.parametrize(
    "address",
    [
        *("/s/none/", "/s/../small/", "/s/%2e%2e/", "/s/.peergate/", "/static/server.py", "/static/..%2fserver.py"),
        *(
            "/s/small/value/x",
            "/s/small/value/..%2f..%2ftrail.sqlite",
            "/s/small/rows/sha256:..",
            "/s/small/entry/9999",
        ),
        *("/s/small/gate/none/1", "/s/small/gate/tuned/7", "/s/small/number/tuned/1/none", "/s/small/nothing"),
    ],
)
def test_what_is_not_there_is_said_to_be_missing(finished: Client, address: str) -> None:
    answer = finished.get(address)
    assert answer.status == 404 and "Traceback" not in answer.text


def test_what_is_missing_from_the_store_is_said(closed_quick: Path, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "small"
    shutil.copytree(closed_quick, run)
    decided = next(entry for entry in read_entries(run / "trail.sqlite") if entry.kind == "packet")
    digest = decided.raw["packet"]
    (run / "store" / digest[7:9] / digest[9:]).unlink()
    answer = Client(Scope(run.parent)).get("/s/small/gate/design/1")
    assert answer.status == 409 and "is not in the content store" in answer.text


def test_a_waiting_session_says_what_a_person_can_do(waiting: Path) -> None:
    client = Client(Scope(waiting.parent))
    page = client.get("/s/small/").text
    assert "It waits for a person" in page and "peergate override" in page and "--answer stop" in page
    gate = client.get("/s/small/gate/tuned/1").text
    assert "blocking" in gate and "escalate" in gate
    listed = client.get("/").text
    assert ">waiting<" in listed and ">tuned.1 escalate<" in listed
    assert page.count("waiting for a person</span>") == 1 and 'gate/tuned/1"><strong>tuned.1' in page


def test_texts_of_models_cannot_leave_their_place(hostile: Path) -> None:
    client = Client(Scope(hostile.parent))
    pages = list(every_page(client, 60))
    assert len(pages) == 60
    seen = 0
    for address, answer in pages:
        assert answer.status == 200, (address, answer.text[:3000])
        assert re.findall(r"<script[^>]*>", answer.text) == ['<script src="/static/view.js" defer>']
        assert "<img" not in answer.text
        assert not re.search("[\u001b\u202e]", answer.text)
        assert not re.search(r"\sstyle=|\son\w+=\"", re.sub(r"&lt;.*?&gt;", "", answer.text))
        seen += "&lt;script&gt;" in answer.text
    assert seen > 5


def long_answers(order: JobOrder) -> list[dict[str, Any]]:
    """Return rows whose first answer has a megabyte."""
    rows = healthy_rows(order)
    if order.kind == "evaluate":
        rows[0] = rows[0] | {"output": rows[0]["output"] + " <b>x</b>" * 120_000}
    return rows


@pytest.mark.slow
def test_an_answer_of_a_megabyte_is_cut_in_lists_and_shown_to_a_limit(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=QuickLauncher(long_answers)))
    client = Client(Scope(run.parent))
    page = client.get("/s/small/samples.json?count=60")
    assert page.status == 200 and len(page.text) < 20_000
    whole = client.get("/s/small/sample.json?number=1").json()
    assert 100_000 < len(whole["before"]) <= 200_000 and whole["before"].endswith("characters left out]")
    assert client.get("/s/small/samples.json?text=%3Cb%3Ex").json()["total"] == 1
    assert len(client.get("/s/small/").text) < 100_000
    exported = trail_page(History(read_entries(run / "trail.sqlite"), Store(run / "store")))
    samples = exported.partition('<section id="samples">')[2].partition("</section>")[0]
    assert "characters left out]" in samples and "&lt;b&gt;x" in samples and len(samples) < 60_000


def damaged(run: Path, folder: Path) -> Path:
    copy = folder / "runs" / run.name
    shutil.copytree(run, copy)
    with sqlite3.connect(copy / "trail.sqlite") as trail:
        for (name,) in trail.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            trail.execute(f"DROP TRIGGER {name}")
        trail.execute(
            'UPDATE entry SET payload = replace(payload, \'"outcome":"approve"\', \'"outcome":"reject"\') WHERE seq = 5'
        )
    trail.close()
    return copy


def test_requested_reviews_of_a_workspace_are_found_from_its_list(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    client = Client(Scope(tmp_path))
    assert "Requested reviews" not in client.get("/").text and client.get("/s/kept/").status == 404
    trail = Trail(tmp_path / "kept" / "reviews.sqlite", "kept")
    append_json(trail, "question", "question/1", body_of("question"))
    trail.close()
    assert 'href="/s/kept/">Requested reviews in kept</a>' in client.get("/").text
    page = client.get("/s/kept/")
    assert page.status == 200 and "request 1 by ada" in page.text
    assert client.get("/s/.peergate/").status == client.get("/s/..%2Fkept/").status == 404


def test_a_damaged_trail_is_named_on_every_page(closed_quick: Path, tmp_path: Path) -> None:
    client = Client(Scope(damaged(closed_quick, tmp_path).parent))
    for path in ("", "samples", "transcript", "gate/tuned/1", "entry/5"):
        assert "This trail is damaged" in client.get(f"/s/small/{path}").text, path
    trail = client.get("/s/small/trail").text
    assert ">Damaged<" in trail and "entry 5" in trail
    assert "Accepted, says a damaged trail" in client.get("/s/small/").text
    sound = Client(Scope(closed_quick.parent))
    assert "This trail is damaged" not in sound.get("/s/small/").text
    # The list is quick and does not verify; what it asks for afterwards does.
    for item, state in ((client, "damaged"), (sound, "closed")):
        session = item.get("/sessions.json?name=small").json()["small"]
        assert session["damaged"] is (state == "damaged") and f'data-state="{state}"' in item.get("/").text


def test_a_trail_that_changed_since_it_was_verified_is_not_called_sound(
    closed_quick: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "runs" / "small"
    shutil.copytree(closed_quick, run)
    client = Client(Scope(run.parent))
    assert "data-unverified" in client.get("/").text
    assert client.get("/sessions.json?name=small").json()["small"]["damaged"] is False
    assert "data-unverified" not in client.get("/").text
    (damaged(closed_quick, tmp_path / "other") / "trail.sqlite").replace(run / "trail.sqlite")
    # The check from a moment ago is not repeated at once.
    assert "damaged" not in client.get("/sessions.json?name=small").json()["small"]
    assert "data-unverified" in client.get("/").text
    monkeypatch.setattr(trail_state, "AGAIN_AFTER_S", 0)
    assert client.get("/sessions.json?name=small").json()["small"]["damaged"] is True


def test_a_trail_is_checked_by_the_heads_that_were_kept_elsewhere(closed_quick: Path, tmp_path: Path) -> None:
    """By the head of this trail, and by that of another one of the same length."""

    def anchored(head: Path) -> str:
        scope = Scope(
            closed_quick.parent, TrailPlace(closed_quick, closed_quick / "trail.sqlite"), anchors=(read_anchor(head),)
        )
        return Client(scope).get("/s/small/trail").text

    assert called("audit", "anchor", closed_quick, "--folder", tmp_path / "heads").returncode == 0
    (head,) = (path for path in (tmp_path / "heads").rglob("*") if path.is_file())
    page = anchored(head)
    assert "<p>anchor " in page and "no anchor kept elsewhere" not in page and "hold</h2>" in page
    lines = head.read_text(encoding="utf-8").splitlines(keepends=True)
    head.write_text("".join([lines[0], lines[1], "A" * 43 + "=\n", *lines[3:]]), encoding="utf-8")
    assert ">Damaged<" in anchored(head)


def test_a_trail_that_cannot_be_read_is_a_page_too(closed_quick: Path, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "small"
    shutil.copytree(closed_quick, run)
    data = (run / "trail.sqlite").read_bytes()
    (run / "trail.sqlite").write_bytes(data[:4096] + b"\0" * 4096 + data[8192:])
    client = Client(Scope(run.parent))
    page = client.get("/s/small/")
    assert page.status == 200 and ">Damaged<" in page.text
    assert "damaged" in client.get("/").text and client.get("/s/small/samples").status == 409


def test_a_key_is_masked_wherever_it_is_shown(waiting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "quite-a-secret-49271"
    run = plant(waiting, tmp_path, f" {secret} ")
    monkeypatch.setenv("SOME_API_KEY", secret)
    client = Client(Scope(run.parent))
    for address, answer in every_page(client, 40):
        assert secret not in answer.text, address
    for address in ("samples.json", "sample.json?number=1"):
        assert secret not in client.get(f"/s/small/{address}").text


def test_requested_reviews_and_exports_are_shown_alone(closed_quick: Path, tmp_path: Path) -> None:
    done = called("audit", "export", closed_quick, tmp_path / "shared")
    assert done.returncode == 0, done.stderr
    client = Client(Scope(tmp_path, TrailPlace(tmp_path / "shared", tmp_path / "shared")))
    assert "Signatures, order and tree hold" in client.get("/s/shared/trail").text
    assert client.get("/s/shared/samples.json?count=1").json()["total"] == N
    assert "Accepted" in client.get("/s/shared/").text
    assert client.get("/s/small/").status == 404


class Down:
    """A reviewer that breaks at a stage."""

    name = "checklist"

    def __init__(self, stage: str) -> None:
        self.stage = stage

    def review(self, packet: Packet, packet_digest: str) -> Verdict:
        if packet.stage == self.stage:
            raise RuntimeError("down")
        return Checklist().review(packet, packet_digest)


def stopped(folder: Path, stage: str) -> Client:
    run = open_quick(folder)
    with pytest.raises(RuntimeError, match="down"):
        drive(quick_session(run, reviewer=Down(stage)))
    return Client(Scope(run.parent))


def test_before_anything_was_answered_the_pages_say_so(tmp_path: Path) -> None:
    client = stopped(tmp_path, "design")
    page = client.get("/s/small/")
    assert page.status == 200 and "No stage was planned yet" in page.text and "to come" in page.text
    missing = client.get("/s/small/samples")
    assert missing.status == 409 and "has not answered the held-out items yet" in missing.text
    assert "has not answered" in client.get("/s/small/samples.json").json()["problem"]


def test_before_the_treatment_has_answered_the_baseline_is_shown_alone(tmp_path: Path) -> None:
    client = stopped(tmp_path, "sample")
    page = client.get("/s/small/samples.json?count=1").json()
    assert page["total"] == N and page["rows"][0]["change"] == "only" and page["rows"][0]["after_right"] is None
    assert client.get("/s/small/samples.json?show=wrong").json()["total"] == N
    assert client.get("/s/small/samples.json?show=gained").json()["total"] == 0
    assert "Nothing is compared yet" in client.get("/s/small/").text


def test_a_second_attempt_says_what_changed_since_the_first(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run, reviewer=Critical()))
    worse = QuickLauncher(rows_with(11))
    drive(quick_session(run, launcher=worse), {"answer": "retry", "reason": "again", "by": "ada", "expires": None})
    client = Client(Scope(run.parent))
    page = client.get("/s/small/gate/tuned/2").text
    assert "Since attempt 1" in page and "<code>gained</code> 12 → 11" in page
    assert "Since attempt" not in client.get("/s/small/gate/tuned/1").text


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("--anchor", "head"), "--anchor takes a single trail"),
        (("small", "--everywhere"), "cannot be combined with RUN"),
    ],
)
def test_what_does_not_go_together_is_refused(
    closed_quick: Path, tmp_path: Path, values: tuple[str, ...], message: str
) -> None:
    done = called("view", *values, "--runs", closed_quick.parent, cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr and not done.stdout


class ClaimingPlaybook(Playbook):
    """Claims a number of the stage before, and one that no one measured."""

    def work(self, bench: Workbench) -> None:
        if bench.phase == "submit" and bench.view.stage == "sample":
            claims = (Claim(stage="base", metric="accuracy", value=0.0), Claim(stage="ship", metric="x", value=1.0))
            arguments = SubmitStage(claims=claims).model_dump_json(exclude_defaults=True)
            bench.call(ToolCall(id="1", name="submit_stage", arguments=arguments))
        super().work(bench)


def test_a_claim_leads_to_the_number_that_was_measured(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run, ClaimingPlaybook()))
    client = Client(Scope(run.parent))
    page = client.get("/s/small/gate/sample/1").text
    claims = page.partition("Claims of the builder")[2].partition("</table>")[0]
    assert re.findall('href="([^"]*)"', claims) == ["/s/small/number/base/1/accuracy"]
    assert claims.count(">supported<") == 1 and claims.count(">unsupported<") == 1
    assert "ship x" in trail_page(History(read_entries(run / "trail.sqlite"), Store(run / "store")))


class Member:
    """A member of a panel; the second one finds something small."""

    def __init__(self, name: str) -> None:
        self.name = name

    def review(self, packet: Packet, packet_digest: str) -> Verdict:
        verdict = Checklist().review(packet, packet_digest)
        place = Span(artifact=packet_digest, pointer="/kind")
        finding = Finding(id="f", severity="minor", statement=f"seen by {self.name}", evidence=(place,))
        return verdict.model_copy(update={"reviewer": self.name, "findings": (finding,)})


def test_the_verdicts_of_a_panel_are_side_by_side(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run, reviewer=ReviewPanel((Member("first"), Member("second")), quorum=2)))
    page = Client(Scope(run.parent)).get("/s/small/gate/design/1").text
    votes = page.partition("Votes, 2 of 2 needed")[2]
    assert [votes.count(f"<h3>{name}</h3>") for name in ("first", "second")] == [1, 1]
    assert votes.index("seen by first") < votes.index("<h3>second</h3>") < votes.index("seen by second")
