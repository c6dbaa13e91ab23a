"""How hard a model is asked to think, how long its answer may be, and what of it is registered."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from reviews.reviewers.vendors.review_model import model_reviewer
from specs.lint.party_rules import LATENCY_S
from specs.system.errors import UserError
from specs.system.vendors.parties import Efforts, TokenPrice
from specs.system.vendors.parties import ReviewerSpec as ReviewerSpec
from specs.trail.verdict import Packet
from testing.factories.spec_files import list_problems, loads, write_spec
from testing.fixtures.loopback_api import CHAT, OPENAI, Api, answered, failed
from testing.fixtures.model_answers import ANSWER
from tests.reviews.reviewers.test_vendors import api as api
from tests.reviews.reviewers.test_vendors import ask, reviewer_at, unavailable
from tests.reviews.reviewers.test_vendors import evidence as evidence
from tests.reviews.reviewers.test_vendors import packet as packet
from tests.reviews.reviewers.test_vendors import vendor as vendor

pytestmark = pytest.mark.integration

CHECKLIST = "reviewer: {vendor: checklist}"
BUDGET = ("review: 0.05", "review: 0.3")
OPEN = "vendor: openai, model: gpt-5-mini"
CLAUDE = "vendor: anthropic, model: claude-opus-5"
FREE = "vendor: openai, model: m, base_url: 'http://h/v1'"
LOCAL = f"{FREE}, usd_per_million_tokens: {{input: 0, output: 0}}"


def asked_for(body: dict[str, Any]) -> list[str]:
    """Return every word on reasoning in a request, whatever the API calls it."""
    results = [body.get("reasoning", {}).get("effort"), body.get("reasoning_effort")]
    results += [body.get("output_config", {}).get("effort"), body.get("thinking", {}).get("type")]
    return [word for word in results if word is not None]


@pytest.mark.parametrize("reasoning", ["low", "medium", "high"])
def test_reasoning_is_sent_as_the_vendor_calls_it_and_recorded(
    api: Api, vendor: str, packet: Packet, monkeypatch: pytest.MonkeyPatch, reasoning: str
) -> None:
    api.steps = [answered(vendor, json.dumps(ANSWER))]
    review = ask(reviewer_at(api, vendor, monkeypatch, reasoning=reasoning), packet)
    assert asked_for(api.requests[0].value()) == ([reasoning, "adaptive"] if vendor == "anthropic" else [reasoning])
    assert review.exchange.reasoning == reasoning and review.value is not None


@pytest.mark.parametrize("reasoning", ["not_sent", None])
def test_reasoning_that_is_not_to_be_sent_is_not_sent(
    api: Api, vendor: str, packet: Packet, monkeypatch: pytest.MonkeyPatch, reasoning: str | None
) -> None:
    api.steps = [answered(vendor, json.dumps(ANSWER))]
    review = ask(reviewer_at(api, vendor, monkeypatch, reasoning=reasoning), packet)
    assert asked_for(api.requests[0].value()) == [] and review.exchange.reasoning is None


def test_a_model_that_refuses_reasoning_says_so_and_the_hint_says_what_to_do(
    api: Api, packet: Packet, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.steps = [failed(OPENAI, 400)]
    review = ask(reviewer_at(api, OPENAI, monkeypatch, reasoning="high"), packet)
    assert review.error is not None and "reasoning: not_sent" in review.error.hint
    api.next_review()
    without = ask(reviewer_at(api, OPENAI, monkeypatch), packet)
    assert without.error is not None and "not_sent" not in without.error.hint


def test_the_answer_is_bounded_by_tokens_too(
    api: Api, vendor: str, packet: Packet, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.steps = [answered(vendor, json.dumps(ANSWER))]
    ask(reviewer_at(api, vendor, monkeypatch, max_output_tokens=700), packet)
    sent = api.requests[0].value()
    assert 700 in (sent.get("max_output_tokens"), sent.get("max_tokens"))


def test_a_token_bound_does_not_lift_the_one_of_the_money(
    api: Api, packet: Packet, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.steps = [answered(OPENAI, json.dumps(ANSWER))]
    ask(reviewer_at(api, OPENAI, monkeypatch, max_cost_usd=0.05, max_output_tokens=900_000), packet)
    assert api.requests[0].value()["max_output_tokens"] * 2 / 1e6 < 0.05


def test_an_endpoint_of_ones_own_is_sent_what_the_spec_states_and_no_more(api: Api, packet: Packet) -> None:
    own = ReviewerSpec(
        vendor="openai",
        model="m",
        base_url=api.address,
        api="chat",
        usd_per_million_tokens=TokenPrice(input=0, output=0),
    )
    api.steps = [answered(CHAT, json.dumps(ANSWER))]
    ask(model_reviewer(own.with_reasoning(), {}), packet)
    assert set(api.requests[0].value()) == {"model", "messages", "max_tokens", "response_format"}


def loaded(folder: Path, reviewer: str) -> ReviewerSpec:
    return loads(write_spec(folder, (CHECKLIST, f"reviewer: {{{reviewer}}}"), BUDGET)).spec.reviewer


def test_a_spec_that_states_nothing_registers_the_reasoning_of_its_tiers(tmp_path: Path) -> None:
    effort = loaded(tmp_path, CLAUDE).effort
    assert (effort.low.reasoning, effort.medium.reasoning, effort.high.reasoning) == ("low", "medium", "high")
    (tmp_path / "stated").mkdir()
    stated = "effort: {high: {timeout_s: 900, max_cost_usd: 1, reasoning: not_sent}}"
    effort = loaded(tmp_path / "stated", f"{OPEN}, {stated}").effort
    assert (effort.low.reasoning, effort.high.reasoning) == ("low", "not_sent")
    (tmp_path / "own").mkdir()
    assert loaded(tmp_path / "own", LOCAL).effort.high.reasoning is None


def test_reviews_have_more_time_than_they_take() -> None:
    for tier in Efforts.model_fields:
        assert getattr(Efforts(), tier).timeout_s > LATENCY_S[tier]


SHORT = [
    (OPEN, "high", "timeout_s: 599", "is 599; a review with high reasoning takes up to 600 s"),
    (OPEN, "low", "timeout_s: 119", "takes up to 120"),
    (CLAUDE, "low", "timeout_s: 299, reasoning: medium", "medium reasoning takes up to 300"),
    (LOCAL, "low", "timeout_s: 60, reasoning: low", "low reasoning takes up to 120"),
]


@pytest.mark.parametrize(("reviewer", "tier", "text", "message"), SHORT)
def test_less_time_than_a_review_takes_is_a_problem_at_its_place(
    tmp_path: Path, reviewer: str, tier: str, text: str, message: str
) -> None:
    effort = f"{reviewer}, effort: {{{tier}: {{max_cost_usd: 0.1, {text}}}}}"
    (problem,) = list_problems(write_spec(tmp_path, (CHECKLIST, f"reviewer: {{{effort}}}"), BUDGET))
    assert f": reviewer.effort.{tier}.timeout_s: timeout_s is " in problem and message in problem


@pytest.mark.parametrize(
    ("reviewer", "text"),
    [
        (OPEN, "high: {timeout_s: 600, max_cost_usd: 1}"),
        (OPEN, "high: {timeout_s: 120, max_cost_usd: 1, reasoning: low}"),
        (OPEN, "high: {timeout_s: 5, max_cost_usd: 1, reasoning: not_sent}"),
        (LOCAL, "high: {timeout_s: 5, max_cost_usd: 1}"),
    ],
)
def test_as_much_time_as_it_takes_is_none(tmp_path: Path, reviewer: str, text: str) -> None:
    assert loaded(tmp_path, f"{reviewer}, effort: {{{text}}}").effort.high.timeout_s


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{OPEN}, api: chat", "'chat' is for an endpoint of your own"),
        (f"{CLAUDE}, api: chat_json_object", "vendor 'anthropic' has one API"),
        ("vendor: checklist, api: chat", "reviewer.api: 'checklist' asks no model"),
        (
            "vendor: openai, model: gpt-99-of-nobody",
            "reviewer.model: no price is known for model 'gpt-99-of-nobody' of",
        ),
        ("vendor: openai, model: gpt5-mini", "did you mean 'gpt-5-mini'? otherwise state usd_per_million_tokens"),
        ("vendor: anthropic, model: gpt-5-mini", "no price is known for model 'gpt-5-mini' of anthropic"),
        (f"{OPEN}, api_key: sk-1", "unknown key 'api_key' (a spec is kept and shown: keys come from the environment"),
        (f"{FREE}, usd_per_million_tokens: {{input: 1}}", "usd_per_million_tokens.output: 'output' is missing"),
        (f"{FREE}, usd_per_million_tokens: {{input: -1, output: 0}}", "input must be at least 0, got -1"),
        (f"{FREE}, usd_per_million_tokens: 3", "usd_per_million_tokens must be keys and values, got 3"),
        (f"{LOCAL}, api: json", "api must be 'responses', 'chat' or 'chat_json_object', got 'json'"),
        (f"{LOCAL}, effort: {{low: {{timeout_s: 1, max_cost_usd: 1, reasoning: deep}}}}", "got 'deep'"),
        (f"{CLAUDE}, effort: {{low: {{timeout_s: 900, max_cost_usd: 0.25, reasoning: none}}}}", "no effort 'none'"),
        (f"{LOCAL}, effort: {{low: {{timeout_s: 1, max_cost_usd: 1, max_output_tokens: 5}}}}", "at least 256"),
    ],
)
def test_what_cannot_be_is_one_problem(tmp_path: Path, text: str, message: str) -> None:
    (problem,) = list_problems(write_spec(tmp_path, (CHECKLIST, f"reviewer: {{{text}}}"), BUDGET))
    assert message in problem


def test_a_model_without_a_known_price_needs_one_stated(tmp_path: Path) -> None:
    stated = "usd_per_million_tokens: {input: 1, output: 2}"
    assert loaded(tmp_path, f"vendor: openai, model: gpt-99-of-nobody, {stated}").usd_per_million_tokens


def test_without_the_price_list_a_spec_is_not_refused_for_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert loaded(tmp_path, "vendor: openai, model: gpt-99-of-nobody").model == "gpt-99-of-nobody"
    with pytest.raises(UserError, match="'genai-prices' is not installed"):
        model_reviewer(ReviewerSpec(vendor="openai", model="gpt-5-mini"), {"OPENAI_API_KEY": "key"})


def test_a_word_on_reasoning_changes_the_registration(tmp_path: Path) -> None:
    results: set[str] = set()
    for number, word in enumerate(("low", "high", "not_sent")):
        folder = tmp_path / str(number)
        folder.mkdir()
        text = f"effort: {{low: {{timeout_s: 900, max_cost_usd: 0.1, reasoning: {word}}}}}"
        path = write_spec(folder, (CHECKLIST, f"reviewer: {{{OPEN}, {text}}}"), BUDGET)
        results.add(loads(path).registration())
    assert len(results) == 3


def test_unavailable_reviews_state_their_reasoning_too(
    api: Api, vendor: str, packet: Packet, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.steps = [failed(vendor, 401)]
    assert unavailable(reviewer_at(api, vendor, monkeypatch, reasoning="low"), packet)[1].reasoning == "low"


@pytest.mark.parametrize(
    ("reviewer", "looks"), [(OPEN, 4), (CLAUDE, 4), (f"{OPEN}, looks: 0", 0), (LOCAL, None), (f"{LOCAL}, looks: 2", 2)]
)
def test_a_vendors_model_looks_into_evidence_and_an_endpoint_only_where_the_spec_says_so(
    tmp_path: Path, reviewer: str, looks: int | None
) -> None:
    spec = loads(write_spec(tmp_path, (CHECKLIST, f"reviewer: {{{reviewer}}}"), BUDGET)).spec
    assert spec.reviewer.looks == looks


LOOKS = {
    "checklist": ("vendor: checklist, looks: 2", "'checklist' asks no model"),
    "chat": (f"{LOCAL}, api: chat, looks: 2", "looks into evidence through the Responses API, or Anthropic's"),
    "too many": (f"{OPEN}, looks: 21", "looks must be at most 20, got 21"),
}


@pytest.mark.parametrize("name", LOOKS)
def test_looks_that_no_one_can_have_are_refused(tmp_path: Path, name: str) -> None:
    reviewer, problem = LOOKS[name]
    (result,) = list_problems(write_spec(tmp_path, (CHECKLIST, f"reviewer: {{{reviewer}}}"), BUDGET))
    assert "reviewer.looks" in result and problem in result
