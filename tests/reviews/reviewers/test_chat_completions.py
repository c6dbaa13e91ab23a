"""Endpoints that speak chat completions only: what they are sent, and every way in which they fail."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reviews.reviewers.vendors.verdict_answer import answer_form
from specs.trail.verdict import Packet
from testing.fixtures.loopback_api import CHAT, CHAT_JSON_OBJECT, Api, answered, choice
from testing.fixtures.model_answers import ANSWER
from tests.reviews.reviewers.test_vendors import KEY, ask, reviewer_at, unavailable

# Fixtures of that module, used here under their names.
from tests.reviews.reviewers.test_vendors import api as api
from tests.reviews.reviewers.test_vendors import evidence as evidence
from tests.reviews.reviewers.test_vendors import packet as packet

pytestmark = pytest.mark.integration

TEXT = json.dumps(ANSWER)


@pytest.fixture(params=[CHAT, CHAT_JSON_OBJECT])
def vendor(request: pytest.FixtureRequest) -> str:
    return request.param


def test_the_two_forms_differ_in_where_the_schema_stands_and_in_nothing_else(
    api: Api, packet: Packet, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.steps = [answered(CHAT, TEXT)]
    bodies: list[dict[str, Any]] = []
    for vendor in (CHAT, CHAT_JSON_OBJECT):
        assert ask(reviewer_at(api, vendor, monkeypatch), packet).value is not None
        bodies.append(api.requests[-1].value())
        api.next_review()
    form, schema = answer_form(), answer_form().schema
    assert bodies[0].pop("response_format") == {
        "type": "json_schema",
        "json_schema": {"name": form.name, "schema": schema, "strict": True},
    }
    assert bodies[1].pop("response_format") == {"type": "json_object", "schema": schema}
    assert bodies[0] == bodies[1]
    # The answer's length is bounded under the one name that every such server knows.
    assert set(bodies[0]) == {"model", "messages", "max_tokens"}
    assert [message["role"] for message in bodies[0]["messages"]] == ["system", "user"]
    assert api.requests[0].path == "/chat/completions" and api.requests[0].headers["authorization"] == f"Bearer {KEY}"


STATES: dict[str, tuple[dict[str, Any], str]] = {
    "cut off": ({"choices": [choice({"content": TEXT}, "length")]}, "incomplete (length)"),
    "filtered": ({"choices": [choice({"content": TEXT}, "content_filter")]}, "the model refused: content_filter"),
    "a tool": ({"choices": [choice({"content": TEXT}, "tool_calls")]}, "not whole"),
    "no reason": ({"choices": [choice({"content": TEXT}, None)]}, "finish reason 'None'"),
    "refusal next to a text": ({"choices": [choice({"content": TEXT, "refusal": "no"})]}, "the model refused: no"),
    "no content": ({"choices": [choice({"content": None})]}, "the answer is empty"),
    "blank content": ({"choices": [choice({"content": " \n"})]}, "the answer is empty"),
    "content in parts": ({"choices": [choice({"content": [{"type": "text", "text": TEXT}]})]}, "not in the form"),
    "no message": ({"choices": [{"index": 0, "finish_reason": "stop"}]}, "not in the form"),
    "null message": ({"choices": [choice({}) | {"message": None}]}, "not in the form"),
    "no choices": ({"choices": []}, "expected 1 choice, got 0"),
    "null choices": ({"choices": None}, "not in the form"),
    "two choices": ({"choices": [choice({"content": TEXT}), choice({"content": TEXT})]}, "expected 1 choice, got 2"),
    "thinking before the JSON": ({"choices": [choice({"content": f"<think>hm</think>{TEXT}"})]}, "does not fit"),
    "a fence around the JSON": ({"choices": [choice({"content": f"```json\n{TEXT}\n```"})]}, "does not fit"),
    "an unknown field": ({"choices": [choice({"content": json.dumps(ANSWER | {"score": 1})})]}, "score"),
}


@pytest.mark.parametrize("state", STATES)
def test_what_is_no_whole_answer_is_no_verdict(
    api: Api, vendor: str, packet: Packet, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    changes, why = STATES[state]
    api.steps = [answered(vendor, TEXT, **changes)]
    message, exchange = unavailable(reviewer_at(api, vendor, monkeypatch), packet)
    assert why in message
    # One outside of the schema is asked for once more, and others are not.
    out_of_schema = why in ("the answer is empty", "does not fit", "score")
    assert len(api.requests) == 1 + len(exchange.earlier) == (2 if out_of_schema else 1) and exchange.usd > 0


def test_a_usage_with_cached_tokens_is_read(api: Api, packet: Packet, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = {"prompt_tokens": 900, "completion_tokens": 70, "prompt_tokens_details": {"cached_tokens": 30}}
    api.steps = [answered(CHAT, TEXT, usage=usage)]
    exchange = ask(reviewer_at(api, CHAT, monkeypatch), packet).exchange
    assert exchange.usage == {"input_tokens": 900, "output_tokens": 70, "cached_tokens": 30}


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": "many", "completion_tokens": 1}])
def test_without_a_usage_the_whole_cap_is_spent(
    api: Api, vendor: str, packet: Packet, monkeypatch: pytest.MonkeyPatch, usage: Any
) -> None:
    api.steps = [answered(vendor, TEXT, usage=usage)]
    review = ask(reviewer_at(api, vendor, monkeypatch), packet)
    assert (review.exchange.usd, review.exchange.usd_is_measured) == (1.0, False)
