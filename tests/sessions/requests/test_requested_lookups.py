"""The reviewer of a requested review looks into rows and files that it is not shown: walls, record, cap and audit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.audit.request_audit import requests_damage
from reviews.history.history import History
from reviews.requests import file_reading
from reviews.requests.run_evidence import run_texts
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from sessions.pages.report.consult_context import ConsultContext
from sessions.pages.report.requested_page import page
from sessions.requests.review_functions import adversarial_review, ask_review, request_review
from specs.system.errors import ReviewerUnavailable
from specs.trail.requested_review import LOOKS, AdversarialRequest, ReviewRequest
from specs.trail.tool_arguments import TEXT_TOOLS
from testing.fixtures.loopback_api import ANTHROPIC, CHAT, OPENAI, Api, ReceivedRequest, Step, answered
from testing.fixtures.quick_session import drive, open_quick, quick_session
from testing.fixtures.scripted_builder import Call, Reply, turn_step
from tests.sessions.requests.test_requested_reviews import ASK, BEST_CASE, ISSUE, REVIEW, MakeDesk, entries, verdict
from tests.sessions.requests.test_requested_reviews import api as api
from tests.sessions.requests.test_requested_reviews import desk as desk
from tests.sessions.requests.test_requested_reviews import here as here

pytestmark = pytest.mark.integration

SECRET = "sk-ant-api03-" + "A1b2" * 20
QUOTE = "1400 of 1400 rows fit; 2 values of answer"
LARGE = "".join(
    json.dumps({"item": f"i{number}", "answer": "yes" if number % 7 else SECRET, "filler": "x" * 90}) + "\n"
    for number in range(1400)
)
"""Above what a model is shown of one file."""


@pytest.fixture(params=[OPENAI, ANTHROPIC])
def vendor(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run folder of a session that has ended."""
    run = open_quick(tmp_path_factory.mktemp("ended"))
    drive(quick_session(run))
    return run


def calling(vendor: str, *calls: Call) -> Callable[[ReceivedRequest], Step]:
    return lambda request: turn_step(vendor, Reply(calls=calls, usage=(2000, 100, 0, 0)), request.value())


def pointing(number: int, quote: str, line: int = 1) -> dict[str, Any]:
    place = {"file": f"answers/{number}", "first_line": line, "last_line": line, "quote": quote}
    best_case = BEST_CASE | {"evidence": [place, *BEST_CASE["evidence"]]}
    return REVIEW | {"best_case": best_case, "issues": [ISSUE | {"evidence": [place]}]}


def with_body(every: list[RecordedEntry], key: str, **changes: Any) -> list[RecordedEntry]:
    return [
        replace(entry, entry=entry.entry.model_copy(update={"body": entry.raw | changes}))
        if entry.key == key
        else entry
        for entry in every
    ]


def test_rows_of_a_file_too_large_to_show_are_looked_up_recorded_and_repeated(
    api: Api, vendor: str, desk: MakeDesk, here: Path
) -> None:
    (here / "rows.jsonl").write_text(LARGE, encoding="utf-8")
    query = Call("query_rows", {"name": "rows.jsonl", "group_by": "answer"}, "call_1")
    api.steps = [calling(vendor, query), answered(vendor, json.dumps(pointing(1, QUOTE, 9)))]
    messages: list[str] = []
    done = request_review(ReviewRequest(paths=("a.py", "rows.jsonl"), kind="code"), desk(vendor, say=messages.append))
    assert done.answer is not None and done.answer.mode == "review", done.error
    (place,) = done.answer.issues[0].evidence
    assert (place.file, place.moved) == ("answers/1", True)
    assert any(line.endswith("looks something up: query_rows") for line in messages)
    first, second = (request.value() for request in api.requests)
    assert {tool["name"] for tool in first["tools"]} == {tool.name for tool in TEXT_TOOLS}
    assert "1200 x yes" in json.dumps(second) and SECRET not in json.dumps(second)
    (entry,), (look,), (recorded_entry,) = (entries(done.folder, kind) for kind in ("question", "look", "answer"))
    store = Store(done.folder / "store")
    assert (look.raw["stage"], look.raw["attempt"], look.raw["packet"]) == (LOOKS, 1, entry.raw["read"])
    assert recorded_entry.raw["looked"] == [{"entry": "look/question/1/1", "answer": look.raw["answer"]}]
    assert len(recorded_entry.raw["earlier"]) == 1 and recorded_entry.raw["usage"]["input_tokens"] == 3000
    (text,) = store.get_value(entry.raw["readable"]).values()
    assert SECRET.encode() not in store.get(text)
    assert f"answers/1 | query_rows {json.dumps(query.arguments)}" in page(done, escaped=False).replace("`", "")
    assert verdict(done.folder) == (0, [], verdict(done.folder)[2])

    every, notes = entries(done.folder), list[str]()
    other = store.put(b"1200 x no")
    for changed, what in (
        ({"answer": other}, "what a reviewer looked up in look/question/1/1 has another answer"),
        ({"most": 60}, "what a reviewer looked up in look/question/1/1 has another answer"),
        ({"reviewer": "openai:other"}, "was looked up for request 1, which is not before it"),
        ({"attempt": 2}, "was looked up for request 2, which is not before it"),
    ):
        result = "\n".join(requests_damage(History(with_body(every, "look/question/1/1", **changed), store), notes))
        assert what in result, changed
    assert list(requests_damage(History(every, store), notes)) == []
    # The answer is the one of these texts, and they have to be there.
    store.path(text).unlink()
    assert verdict(done.folder)[0] == 1


@pytest.mark.more
def test_a_session_is_looked_into_behind_the_walls_of_its_gates(
    api: Api, vendor: str, desk: MakeDesk, ended: Path
) -> None:
    texts = dict(run_texts(ended))
    assert {"small.data.prompts", "small.base.1.rows", "small.tuned.1.rows"} <= texts.keys()
    heldout = json.loads((ended.parent.parent / "heldout.jsonl").read_text().splitlines()[0])["prompt"]
    assert not any(heldout in text for text in texts.values())
    before, after = (
        [json.loads(line) for line in texts[f"small.{stage}.1.rows"].splitlines()] for stage in ("base", "tuned")
    )
    assert all(set(row["output"]) == {"characters", "words", "same"} for row in (*before, *after))
    calls = (
        Call("compare_rows", {"first": "small.base.1.rows", "second": "small.tuned.1.rows", "field": "output"}, "c1"),
        Call("read_artifact", {"name": "small.data.heldout"}, "c2"),
        Call("metric_lines", {"metric": "accuracy"}, "c3"),
    )
    api.steps = [calling(vendor, *calls), answered(vendor, json.dumps(pointing(1, "output differs in 12")))]
    done = request_review(ReviewRequest(paths=(str(ended),), kind="methodology"), desk(vendor))
    assert done.answer is not None and done.answer.mode == "review" and len(done.answer.issues) == 1, done.error
    store = Store(done.folder / "store")
    first, *refused = (store.get(entry.raw["answer"]).decode() for entry in entries(done.folder, "look"))
    assert first.startswith("12 items are in both")
    assert refused[0].startswith("'small.data.heldout' is not among the evidence: small.base.1.inputs.items, ")
    assert refused[1].startswith("unknown tool 'metric_lines': query_rows, compare_rows, grep, read_artifact")
    assert verdict(done.folder)[:2] == (0, [])


@pytest.mark.more
def test_claims_are_looked_up_in_a_session_too(api: Api, desk: MakeDesk, here: Path, ended: Path) -> None:
    (here / "claims.md").write_text("Twelve items were answered.\n", encoding="utf-8")
    place = {"file": "claims.md", "first_line": 1, "last_line": 1, "quote": "Twelve items were answered."}
    shows = {"file": "answers/1", "first_line": 1, "last_line": 1, "quote": "12 of 12 rows fit"}
    row = {
        "claim": "twelve",
        "stated_at": place,
        "evidence": [shows],
        "explanation": "So it is.",
        "status": "supported",
    }
    rest = {"overclaimed": [], "fixes": [], "not_judged": [], "overall_assessment": "Fine."}
    value = {"best_case": {"argument": "It says so.", "evidence": [place]}, "scorecard": [row], **rest}
    query = Call("query_rows", {"name": "small.tuned.1.rows", "limit": 1}, "call_1")
    api.steps = [calling(OPENAI, query), answered(OPENAI, json.dumps(value))]
    done = adversarial_review(AdversarialRequest(path="claims.md", evidence=(str(ended),)), desk())
    assert done.answer is not None and done.answer.mode == "adversarial", done.error
    (judged,) = done.answer.scorecard
    assert (judged.status, [citation.file for citation in judged.evidence]) == ("supported", ["answers/1"])


def test_an_answer_that_was_never_given_shows_nothing(api: Api, desk: MakeDesk, here: Path) -> None:
    (here / "rows.jsonl").write_text(LARGE, encoding="utf-8")
    query = Call("query_rows", {"name": "rows.jsonl", "limit": 1}, "call_1")
    api.steps = [calling(OPENAI, query), answered(OPENAI, json.dumps(pointing(2, "1 are shown")))]
    done = request_review(ReviewRequest(paths=("a.py", "rows.jsonl"), kind="code"), desk())
    assert done.answer is not None and done.answer.mode == "review"
    assert (done.answer.issues, [finding.what for finding in done.answer.unresolved]) == ((), ["issue"])


def test_who_may_not_look_is_sent_no_tools(api: Api, desk: MakeDesk, here: Path) -> None:
    """An API of chat, looks: 0, and a question have none; nor has a request with nothing next to what is shown."""
    (here / "rows.jsonl").write_text(LARGE, encoding="utf-8")
    both = ReviewRequest(paths=("a.py", "rows.jsonl"), kind="code")
    none = desk()
    none = replace(none, reviewer=none.reviewer.model_copy(update={"looks": 0}))
    chat = desk(CHAT)
    chat = replace(chat, reviewer=chat.reviewer.model_copy(update={"looks": 3}))
    for request, context, vendor in (
        (both, none, OPENAI),
        (both, chat, CHAT),
        (ReviewRequest(paths=("a.py",), kind="code"), desk(), OPENAI),
    ):
        api.next_review()
        api.steps = [answered(vendor, json.dumps(REVIEW))]
        done = request_review(request, context)
        assert done.answer is not None and done.request_entry.readable is None, done.error
        assert "tools" not in api.requests[-1].value()
    api.next_review()
    assert ask_review(ASK, desk()).request_entry.readable is None


def test_what_is_looked_up_stays_within_the_cap(api: Api, desk: MakeDesk, here: Path) -> None:
    """With the cap of a low effort nothing may be called; what is called anyway is not carried out."""
    (here / "rows.jsonl").write_text(LARGE, encoding="utf-8")
    query = Call("query_rows", {"name": "rows.jsonl", "limit": 1}, "call_1")
    api.steps = [calling(OPENAI, query)]
    done = request_review(ReviewRequest(paths=("rows.jsonl",), kind="code"), desk(max_cost_usd=0.03))
    assert api.requests[0].value()["tool_choice"] == "none"
    assert isinstance(done.error, ReviewerUnavailable)
    assert done.error.message == "the answer calls tools although nothing more can be looked up"
    assert not entries(done.folder, "look") and done.answer_entry.usd <= 0.03


def test_other_rows_make_another_request(api: Api, desk: MakeDesk, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The digest of a file this large is not among those of what was left out.
    monkeypatch.setattr(file_reading, "MAX_DIGESTED_BYTES", 1000)
    (here / "rows.jsonl").write_text(LARGE, encoding="utf-8")
    request = ReviewRequest(paths=("a.py", "rows.jsonl"), kind="code")
    api.steps = [answered(OPENAI, json.dumps(REVIEW))]
    assert request_review(request, desk()).answer_entry.by == "model"
    assert request_review(request, desk()).answer_entry.by == "recorded"
    (here / "rows.jsonl").write_text(LARGE.replace('"i0"', '"i9"'), encoding="utf-8")
    api.next_review()
    done = request_review(request, desk())
    assert done.answer_entry.by == "model" and verdict(done.folder)[0] == 0
    # What could be looked into has to be there, whether anything was looked up or not.
    store = Store(done.folder / "store")
    (text,) = store.get_value(done.request_entry.readable or "").values()
    store.path(text).unlink()
    assert verdict(done.folder)[0] == 1


def test_what_can_be_looked_into_is_bounded_and_text(
    monkeypatch: pytest.MonkeyPatch, desk: MakeDesk, here: Path
) -> None:
    (here / "data").mkdir()
    for name, data in (
        ("cut.txt", b"\xc3\xa9" * 90_000),
        ("weights.bin", b"\x00" * 200_000),
        ("latin.txt", b"\xe9" * 200_000),
        ("small.txt", b"shown in full"),
        ("token.txt", b"x" * 200_000),
    ):
        (here / "data" / name).write_bytes(data)
    monkeypatch.setattr(file_reading, "MOST_READABLE", 40_000)
    beside = reader_of(desk(), here / "data").beside
    assert beside == {"data-cut.txt": "\xe9" * 40_000}
    monkeypatch.setattr(file_reading, "MOST_BESIDE", 39_999)
    assert reader_of(desk(), here / "data").beside == {}


def reader_of(desk: ConsultContext, folder: Path) -> file_reading.RequestReader:
    from specs.system.masking import masker_of

    reader = file_reading.RequestReader(masker_of(desk.environ), desk.readable)
    reader.add(folder, "file")
    reader.add_rest_beside()
    return reader
