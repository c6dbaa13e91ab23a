"""The loopback server's complaints: each has a client that earns it, and a good client earns none."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from typing import Any

import httpx2
import pytest

from testing.fixtures.loopback_api import Api, Step, loopback_api
from testing.fixtures.strict_vendor import ANTHROPIC_VERSION, MAX_BODY_BYTES

pytestmark = pytest.mark.integration

KEY = "sk-test-of-a-client"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"part": {"$ref": "#/$defs/Part"}, "word": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
    "required": ["part", "word"],
    "additionalProperties": False,
    "$defs": {
        "Part": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        | {"additionalProperties": False}
    },
}
HEADERS = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
OK = Step(b"{}")


def form(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}


RESPONSES: dict[str, Any] = {"model": "m", "input": "text", "text": {"format": form(SCHEMA)}}
COMPLETIONS: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "text"}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}},
}
MESSAGES: dict[str, Any] = {
    "model": "m",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "text"}],
    "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
}
TO_ANTHROPIC = {"content-type": "application/json", "x-api-key": KEY}
VERSION = {"anthropic-version": ANTHROPIC_VERSION}


@pytest.fixture
def api() -> Iterator[Api]:
    with loopback_api() as running:
        running.steps = [OK]
        yield running


def post(api: Api, body: Any, path: str = "/responses", headers: Any = HEADERS) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    # Not through the client under test, which would not send most of this.
    with httpx2.Client() as client:
        client.post(api.address + path, content=data, headers=headers)


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        ("/responses", RESPONSES, HEADERS),
        ("/v1/chat/completions", COMPLETIONS, HEADERS),
        ("/v1/chat/completions", COMPLETIONS | {"response_format": {"type": "json_object", "schema": SCHEMA}}, HEADERS),
        ("/v1/messages", MESSAGES, TO_ANTHROPIC | VERSION),
    ],
)
def test_a_good_client_is_not_complained_about(api: Api, path: str, body: Any, headers: Any) -> None:
    post(api, body, path, headers)
    assert api.complaints() == []


def without(name: str) -> dict[str, str]:
    return {key: value for key, value in HEADERS.items() if key != name}


def changed(**changes: Any) -> dict[str, Any]:
    """Return the good request with another schema."""
    return RESPONSES | {"text": {"format": form(SCHEMA | changes)}}


ONE_REQUEST: dict[str, tuple[str, Any, Any, str]] = {
    "no key": ("/responses", RESPONSES, without("authorization"), "0 headers with a key"),
    "two keys": ("/responses", RESPONSES, HEADERS | {"x-api-key": KEY}, "2 headers with a key"),
    "key twice": ("/responses", RESPONSES, [*HEADERS.items(), ("authorization", KEY)], "2 headers with a key"),
    "bearer token for Anthropic": ("/v1/messages", MESSAGES, HEADERS | {"anthropic-version": ANTHROPIC_VERSION},
     "x-api-key"),
    "own header for OpenAI": ("/responses", RESPONSES, {**without("authorization"), "x-api-key": KEY}, "authorization"),
    "not a bearer token": ("/responses", RESPONSES, HEADERS | {"authorization": KEY}, "not a bearer token"),
    "no version": ("/v1/messages", MESSAGES, TO_ANTHROPIC, "anthropic-version is None"),
    "old version": ("/v1/messages", MESSAGES, TO_ANTHROPIC | {"anthropic-version": "2020-01-01"}, "is 2020-01-01"),
    "no content type": ("/responses", RESPONSES, without("content-type"), "content-type is None"),
    "wrong content type": ("/responses", RESPONSES, HEADERS | {"content-type": "text/plain"}, "is text/plain"),
    "key in the body": ("/responses", RESPONSES | {"input": f"my key is {KEY}"}, HEADERS, "the key is in the body"),
    "large": ("/responses", RESPONSES | {"input": "x" * MAX_BODY_BYTES}, HEADERS, "a body of 33554"),
    "other path": ("/v1/complete", RESPONSES, HEADERS, "there is no /v1/complete"),
    "no JSON": ("/responses", b"model=m", HEADERS, "the body is not JSON"),
    "unknown field": ("/responses", RESPONSES | {"effort": "high"}, HEADERS, "effort: Extra inputs"),
    "unknown field of chat": ("/v1/chat/completions", COMPLETIONS | {"top_k": 1}, HEADERS, "top_k: Extra inputs"),
    "unknown field of Anthropic": ("/v1/messages", MESSAGES | {"store": False}, TO_ANTHROPIC | VERSION, "store: Extra"),
    "unknown field below": ("/responses", RESPONSES | {"reasoning": {"effort": "low", "depth": 1}}, HEADERS,
     "depth: Extra inputs"),
    "unknown field of a message": ("/v1/messages",
     MESSAGES | {"messages": [{"role": "user", "content": "x", "name": "y"}]}, TO_ANTHROPIC | VERSION, "Extra inputs"),
    "no such effort": ("/responses", RESPONSES | {"reasoning": {"effort": "extreme"}}, HEADERS, "body: reasoning"),
    "missing field": ("/v1/messages", {**MESSAGES, "max_tokens": None}, TO_ANTHROPIC | VERSION, "body: max_tokens"),
    "deprecated": ("/responses", RESPONSES | {"user": "me"}, HEADERS, "deprecated: user"),
    "deprecated in chat": ("/v1/chat/completions", COMPLETIONS | {"functions": []}, HEADERS, "deprecated: functions"),
    "no schema": ("/responses", {"model": "m", "input": "x"}, HEADERS, "not bound to a form"),
    "open object": ("/responses", changed(additionalProperties=True), HEADERS, "additionalProperties is not false"),
    "optional property": ("/responses", changed(required=["part"]), HEADERS, "not every property is required"),
    "open object below": ("/responses", changed(**{"$defs": {"Part": {"type": "object", "properties": {}}}}), HEADERS,
     "schema.Part: additionalProperties is not false"),
    "keyword": ("/responses", changed(minProperties=1, oneOf=[]), HEADERS, "'oneOf' is not taken by both"),
    "keyword below": ("/responses",
     changed(properties={"part": {"type": "array", "items": {"type": "integer", "minimum": 1}}, "word": {}}), HEADERS,
     "schema.part.items: 'minimum'"),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE_REQUEST)
def test_a_bad_request_is_complained_about_once(api: Api, name: str) -> None:
    path, body, headers, complaint = ONE_REQUEST[name]
    post(api, body, path, headers)
    (message,) = api.complaints()
    assert complaint in message and message.startswith("request 1: ")


def twice(api: Api, first: Step, second: Any = RESPONSES, wait_s: float = 0) -> None:
    api.steps = [first, OK]
    post(api, RESPONSES)
    time.sleep(wait_s)
    post(api, second)


def refusal(status: int, **headers: str) -> Step:
    return Step(b"{}", status, {name.replace("_", "-"): value for name, value in headers.items()})


TWO_REQUESTS: dict[str, tuple[Callable[[Api], None], str]] = {
    "too soon": (lambda api: twice(api, refusal(429, retry_after="1")), "Retry-After said 1.00"),
    "too soon in ms": (lambda api: twice(api, refusal(429, retry_after_ms="500")), "Retry-After said 0.50"),
    "too soon by date": (
        lambda api: twice(api, refusal(503, retry_after=formatdate(time.time() + 60, usegmt=True))),
        "Retry-After said 5",
    ),
    "after an answer": (lambda api: twice(api, OK), "the first may have been billed"),
    "after half an answer": (lambda api: twice_cut(api), "the first may have been billed"),
    "after a refusal for good": (lambda api: twice(api, refusal(401)), "repeated after status 401"),
    "another body": (lambda api: twice(api, refusal(500), RESPONSES | {"input": "y"}), "another body"),
}


def twice_cut(api: Api) -> None:
    """Once more than a client may pay for."""
    api.steps = [*[Step(b"{}", cut=True)] * 3, OK]
    for _ in range(3):
        with pytest.raises(httpx2.HTTPError):
            post(api, RESPONSES)
    assert api.complaints() == []
    post(api, RESPONSES)


@pytest.mark.parametrize("name", TWO_REQUESTS)
def test_a_bad_repeat_is_complained_about_once(api: Api, name: str) -> None:
    act, complaint = TWO_REQUESTS[name]
    act(api)
    (message,) = api.complaints()
    assert complaint in message and message.startswith("review 1: ")


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
def test_a_repeat_after_the_wait_is_not_complained_about(api: Api, status: int) -> None:
    twice(api, refusal(status, retry_after_ms="100"), wait_s=0.15)
    assert len(api.requests) == 2 and api.complaints() == []


def test_asking_once_more_after_a_whole_answer_is_not_complained_about(api: Api) -> None:
    turns = [{"role": role, "content": "text"} for role in ("user", "assistant", "user")]
    post(api, RESPONSES)
    post(api, RESPONSES | {"input": turns})
    assert api.complaints() == []
    post(api, RESPONSES | {"input": [*turns, *turns[1:]]})
    assert api.complaints() == []
    # Nothing new, or another beginning, is not a conversation that continues.
    post(api, RESPONSES | {"input": turns[1:]})
    assert "review 1: repeated although the first may have been billed" in api.complaints()


def test_two_requests_at_once_are_complained_about(api: Api) -> None:
    api.steps = [Step(b"{}", 500, hang_s=0.3), OK]
    slow = threading.Thread(target=post, args=(api, RESPONSES))
    slow.start()
    time.sleep(0.1)
    post(api, RESPONSES)
    slow.join()
    assert api.complaints() == ["review 1: two requests at once"]


def test_what_belongs_to_two_reviews_is_no_repeat(api: Api) -> None:
    twice(api, OK)
    assert api.complaints() != []
    api.requests[1].review = 2
    assert api.complaints() == []
