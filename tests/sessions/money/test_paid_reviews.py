"""A review that costs money, through the gate: reserved before, settled after, kept without the key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.audit.audit_files import named_in_store
from reviews.gate.reviewer import ReviewExchange
from reviews.trail.chain.store import Store
from reviews.trail.trail import Trail
from sessions.jobs.job_environment import job_environment
from sessions.nodes import judge
from sessions.requests import reviewer_call
from sessions.run.money import ledger
from sessions.runtime.wiring import make_reviewer
from sessions.session import PauseSignal, Session
from specs.session.session_spec import ResolvedSpec
from specs.system.digests import digest_bytes
from specs.system.errors import BudgetExceeded, UserError
from specs.system.vendors import http_exchange
from testing.factories.bodies import append_json, body_of
from testing.factories.evidence_on_disk import resolved_spec
from testing.factories.spec_files import list_problems, loads, write_spec
from testing.fixtures.loopback_api import OPENAI, Api, answered, failed, loopback_api, truncated
from testing.fixtures.model_answers import ANSWER
from testing.fixtures.reviewer_here import ReviewerHere
from tests.reviews.reviewers.test_vendors import KEY

pytestmark = pytest.mark.integration

REVIEWER = "reviewer: {vendor: openai, model: gpt-5-mini, outage_s: 0}"
BUDGET = ("review: 0.05", "review: 0.3")
USD = (1000 * 0.25 + 200 * 2) / 1e6
"""What the usage of the loopback server costs at the list price of gpt-5-mini."""


def nothing(*_: Any) -> tuple[()]:
    return ()


class Quiet:
    """A display that shows nothing."""

    def __getattr__(self, name: str) -> Any:
        return nothing


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.setattr(http_exchange, "BACKOFF_S", 0.01)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with loopback_api() as running:
        monkeypatch.setitem(http_exchange.ADDRESSES, OPENAI, running.address)
        running.steps = [answered(OPENAI, json.dumps(ANSWER))]
        yield running
        assert running.complaints() == []


@pytest.fixture
def resolved(tmp_path: Path) -> ResolvedSpec:
    return resolved_spec(tmp_path, ("reviewer: {vendor: checklist}", REVIEWER), BUDGET)


@pytest.fixture
def session(tmp_path: Path, api: Api, resolved: ResolvedSpec) -> Iterator[Session]:
    yield from opened(tmp_path, resolved)


def opened(folder: Path, resolved: ResolvedSpec) -> Iterator[Session]:
    trail = Trail(folder / "trail.sqlite", "small")
    append_json(trail, "open", "open", body_of("open", registration=resolved.registration()))
    store = Store(folder / "store")
    for named in (resolved.spec.heldout, *resolved.spec.data.values()):
        store.put(resolved.path(named.path).read_bytes())
    trail.keys.create()
    process = trail.reviewer = ReviewerHere("small", resolved.spec.reviewers(), trail.keys.path("reviewer"))
    unused: Any = None
    quiet: Any = Quiet()
    yield Session(
        name="small",
        run=folder,
        cache=folder,
        resolved=resolved,
        trail=trail,
        store=store,
        launcher=unused,
        builder=unused,
        wire_reviewer=lambda: make_reviewer(resolved.spec, process),
        reviewing=process,
        display=quiet,
    )
    trail.close()


def body(session: Session, key: str) -> dict[str, Any]:
    entry = session.trail.find(key)
    assert entry is not None, key
    return entry.raw


def money(session: Session) -> tuple[float, float]:
    now = ledger.balance(session.trail, session.resolved.spec.budget)
    return now.spent_usd, now.reserved_usd


def test_a_review_is_reserved_recorded_and_settled(session: Session, api: Api) -> None:
    judge.design_gate(session, {})
    judged = body(session, "verdict/design.1")
    assert (judged["model"], judged["statuses"], judged["error"]) == ("model-as-answered", [200], "")
    assert judged["reviewer"] == "openai:gpt-5-mini" and judged["seconds"] > 0
    # The design gate has medium stakes, and the spec states nothing else.
    assert judged["reasoning"] == api.requests[0].value()["reasoning"]["effort"] == "medium"
    assert session.store.get(judged["request"]) == api.requests[0].body
    assert judged["response"] == digest_bytes(answered(OPENAI, json.dumps(ANSWER)).streamed)
    assert body(session, "reserve/review/design.1")["usd"] == 0.5
    assert body(session, "settle/review/design.1") == {
        "what": "settle",
        "job": "review/design.1",
        "party": "reviewer",
        "stage": "design",
        "usd": pytest.approx(USD),
    }
    assert money(session) == (pytest.approx(USD), 0)


@pytest.mark.parametrize("step", [failed(OPENAI, 500), truncated(OPENAI, json.dumps(ANSWER))])
def test_a_review_that_failed_asks_a_person_and_is_settled_too(
    session: Session, api: Api, step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The small design fails its own checks, which would be worse than a missing review.
    monkeypatch.setattr(judge, "check_design", nothing)
    api.steps = [step]
    assert judge.design_gate(session, {}) == {"route": "human"}
    judged = body(session, "verdict/design.1")
    assert judged["cause"] in ("server_error", "incomplete") and judged["error"]
    assert body(session, "decision/design.1")["outcome"] == "escalate"
    assert money(session) == (pytest.approx(judged["usd"]), 0)


def test_an_answer_that_is_cut_off_is_asked_for_again_and_both_calls_are_paid_for(
    session: Session, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "check_design", nothing)
    whole = answered(OPENAI, json.dumps(ANSWER))
    api.steps = [replace(whole, cut=True), whole]
    assert judge.design_gate(session, {}) != {"route": "human"}
    judged = body(session, "verdict/design.1")
    assert (judged["error"], judged["reservation"]) == ("", "review/design.1/2") and len(api.requests) == 2
    # No one knows whether the first was billed, so its cap counts.
    assert body(session, "settle/review/design.1")["usd"] == 0.5
    assert body(session, "settle/review/design.1/2")["usd"] == pytest.approx(USD)


def test_an_answer_that_is_cut_off_every_time_asks_a_person(
    session: Session, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "check_design", nothing)
    api.steps = [replace(answered(OPENAI, json.dumps(ANSWER)), cut=True)]
    assert judge.design_gate(session, {}) == {"route": "human"}
    judged = body(session, "verdict/design.1")
    assert judged["error"].startswith("the answer of the model's server was cut off: ") and len(api.requests) == 3
    assert judged["cause"] == "cut_off" and money(session) == (1.5, 0)


def test_an_answer_outside_of_the_schema_is_kept_next_to_the_second(
    session: Session, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "check_design", nothing)
    api.steps = [answered(OPENAI, "I approve."), answered(OPENAI, json.dumps(ANSWER))]
    judge.design_gate(session, {})
    recorded = session.trail.find("verdict/design.1")
    assert recorded is not None and recorded.raw["error"] == ""
    (first,) = recorded.raw["earlier"]
    assert session.store.get(first["request"]) == api.requests[0].body
    assert b"I approve." in session.store.get(first["response"]) and "Invalid JSON" in first["error"]
    assert first["error"].encode() in session.store.get(recorded.raw["request"])
    assert recorded.raw["usd"] == pytest.approx(2 * USD)
    # An audit finds it if the first answer is gone.
    named = {file.name: file.digest for file in named_in_store(recorded)}
    assert named["earlier.0.request"] == first["request"] and named["earlier.0.response"] == first["response"]


def test_a_pause_while_the_api_is_down_costs_what_came_before(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pause(*_: Any) -> Any:
        raise PauseSignal("small")

    monkeypatch.setattr(session.reviewer, "ask", pause)
    session.reviewing.waiting_usd = 0.125
    with pytest.raises(PauseSignal):
        judge.design_gate(session, {})
    assert money(session) == (0.125, 0) and session.trail.find("verdict/design.1") is None


def test_the_key_is_in_nothing_that_is_kept(session: Session, api: Api, tmp_path: Path) -> None:
    echo = json.dumps({"error": {"type": "t", "message": f"wrong key {KEY}"}}).encode()
    api.steps = [type(failed(OPENAI, 401))(echo, 401)]
    judge.design_gate(session, {})
    assert body(session, "verdict/design.1")["error"]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 8
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
    assert KEY not in json.dumps(job_environment())


def test_a_call_whose_process_died_counts_as_its_whole_cap(session: Session) -> None:
    """The reservation is there and no verdict: no one knows whether the call was billed."""
    ledger.reserve_review(session.trail, session.resolved.spec.budget, "design", 1, 0.5)
    judge.design_gate(session, {})
    assert body(session, "settle/review/design.1")["usd"] == 0.5
    assert body(session, "verdict/design.1")["reservation"] == "review/design.1/2"
    assert money(session) == (pytest.approx(0.5 + USD), 0)


def test_a_process_that_died_before_settling_settles_when_it_goes_on(
    session: Session, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ledger, "settle", die)
        with pytest.raises(KeyboardInterrupt):
            judge.design_gate(session, {})
    assert money(session) == (0, 0.5)
    judge.design_gate(session, {})
    assert money(session) == (pytest.approx(USD), 0) and len(api.requests) == 1


@pytest.mark.parametrize(("name", "value"), [("usd", 0.0), ("model", "gpt-9"), ("request", digest_bytes(b"another"))])
def test_what_a_review_took_is_signed_as_the_reviewer_left_it(
    session: Session, monkeypatch: pytest.MonkeyPatch, name: str, value: Any
) -> None:
    """The session does not make a review cheaper, of another model, or an answer to another request."""
    honest = reviewer_call.exchange_facts

    def altered(store: Store, exchange: ReviewExchange) -> dict[str, Any]:
        return honest(store, exchange) | {name: value}

    monkeypatch.setattr(reviewer_call, "exchange_facts", altered)
    judge.design_gate(session, {})
    report = body(session, "verdict/design.1")
    assert report["error"].endswith(f"{name} is not what the reviewer left")
    assert body(session, "decision/design.1")["outcome"] != "approve"


def test_reviews_end_with_their_share(session: Session, api: Api) -> None:
    budget = session.resolved.spec.budget
    for attempt in range(1, 7):
        ledger.reserve_review(session.trail, budget, "sample", attempt, 0.5)
    with pytest.raises(BudgetExceeded, match=r"the review may cost 0\.5000 USD, 0\.0000"):
        judge.design_gate(session, {})
    assert session.trail.find("verdict/design.1") is None and api.requests == []


def test_what_reviews_take_from_their_share_is_not_held_back_a_second_time(session: Session) -> None:
    budget = session.resolved.spec.budget
    key = ledger.reserve_review(session.trail, budget, "design", 1, 3.0)
    ledger.settle(session.trail, key, 3.0)
    # 10 USD, 3 for reviews (spent), 2 and 0.5 held back for evaluation and teardown: 4.5 are left for training.
    train = session.resolved.spec.stage("train").model_copy(update={"max_minutes": 4.5 / 2 * 60})
    budget = budget.model_copy(update={"max_hours": 100})
    ledger.reserve_job(session.trail, budget, train, "train.1")


LINT = [
    ("{vendor: checklist, effort: {}}", "reviewer.effort: 'checklist' asks no model"),
    ("{vendor: anthropic, model: m, base_url: 'http://127.0.0.1/v1'}", "the price of an endpoint of your own"),
    (
        "{vendor: anthropic, model: m, base_url: 'http://127.0.0.1/v1', api: chat, "
        "usd_per_million_tokens: {input: 0, output: 0}}",
        "vendor 'anthropic' has one API",
    ),
    ("{vendor: openai, model: m, base_url: 'http://127.0.0.1/v1'}", "the price of an endpoint of your own"),
    ("{vendor: openai, model: m, base_url: 'http://me:secret@host/v1'}", "here begins a secret (a password)"),
    ("{vendor: openai, model: m, base_url: 'ftp://host'}", "base_url must be an address with http"),
]


@pytest.mark.parametrize(("text", "message"), LINT)
def test_what_does_not_go_together_is_one_problem_at_its_place(tmp_path: Path, text: str, message: str) -> None:
    (problem,) = list_problems(write_spec(tmp_path, ("reviewer: {vendor: checklist}", f"reviewer: {text}"), BUDGET))
    assert message in problem and problem.startswith("8:")


def test_reviews_that_their_share_does_not_pay_for_are_refused(tmp_path: Path) -> None:
    (problem,) = list_problems(write_spec(tmp_path, ("reviewer: {vendor: checklist}", REVIEWER)))
    assert "one review of every gate may cost 2.75 USD, held_back.review keeps 0.50 USD" in problem


def test_a_free_endpoint_needs_no_share(tmp_path: Path) -> None:
    free = "{vendor: openai, model: m, base_url: 'http://h/v1', usd_per_million_tokens: {input: 0, output: 0}}"
    assert loads(write_spec(tmp_path, ("reviewer: {vendor: checklist}", f"reviewer: {free}"))).spec.reviewer.base_url


def test_a_spec_without_a_model_is_registered_as_it_always_was(tmp_path: Path) -> None:
    spec = loads(write_spec(tmp_path)).spec
    assert spec.model_dump(mode="json")["reviewer"] == {"vendor": "checklist", "model": None}
    (tmp_path / "other").mkdir()
    session_spec = loads(write_spec(tmp_path / "other", ("reviewer: {vendor: checklist}", REVIEWER), BUDGET)).spec
    assert session_spec.model_validate(session_spec.model_dump(mode="json")) == session_spec
    assert session_spec.model_dump(mode="json")["reviewer"]["effort"]["low"]["max_cost_usd"] == 0.25


def test_a_session_without_the_key_is_refused(
    tmp_path: Path, resolved: ResolvedSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UserError, match="OPENAI_API_KEY is not set"):
        make_reviewer(resolved.spec)
