"""The scripted vendor's complaints: each has a client that earns it. The clients are the real one, spoilt."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from agents import model_builder
from agents.conversation import conversation
from agents.model_builder import ModelBuilder
from agents.workbench_protocol import PastTurn
from specs.system.errors import BuilderUnavailable
from specs.system.vendors import http_exchange
from specs.system.vendors.api_keys import ENDPOINT_KEYS, KEYS
from specs.system.vendors.conversation import ConversationMessage
from specs.system.vendors.parties import BuilderSpec, TokenPrice
from testing.fixtures.loopback_api import ANTHROPIC, CHAT, OPENAI, failed
from testing.fixtures.scripted_builder import Call, Played, call, calls, scripted_builder
from testing.fixtures.small_bench import SmallBench
from testing.fixtures.strict_conversation import complaints
from testing.fixtures.strict_vendor import ANTHROPIC_VERSION

pytestmark = pytest.mark.integration

KEY = "sk-test-of-a-client"
TWO = calls(Call("list_artifacts", {}), Call("read_spec", {"section": "/stages"}), text="I look.")
LAUNCH = call("launch_stage", stage="sample", reason="the parameters of the spec")
Spoil = Callable[[tuple[ConversationMessage, ...]], tuple[ConversationMessage, ...]]


@pytest.fixture(params=[ANTHROPIC, OPENAI, CHAT])
def vendor(request: pytest.FixtureRequest) -> str:
    return request.param


def played_with(vendor: str, monkeypatch: pytest.MonkeyPatch, spoil: Spoil | None = None) -> list[str]:
    """Play two calls and a launch to a builder whose conversation is spoilt, and return the complaints."""
    monkeypatch.setattr(http_exchange, "BACKOFF_S", 0.01)
    if spoil is not None:

        def spoilt(brief: str, past: Sequence[PastTurn], shortened: int) -> tuple[ConversationMessage, ...]:
            return spoil(conversation(brief, past, shortened))

        monkeypatch.setattr(model_builder, "conversation", spoilt)
    with scripted_builder(vendor, [TWO, LAUNCH]) as played:
        # A vendor that refuses what it was sent says so in its complaints too.
        with suppress(BuilderUnavailable):
            builder_at(played, monkeypatch).work(SmallBench())
        return played.complaints()


def builder_at(played: Played, monkeypatch: pytest.MonkeyPatch) -> ModelBuilder:
    """Build the builder as a session does; only the address is the loopback server's."""
    spec: dict[str, Any] = {"model": "m", "usd_per_million_tokens": TokenPrice(input=1, output=2)}
    if played.vendor == CHAT:
        return ModelBuilder(
            BuilderSpec(vendor=OPENAI, base_url=played.address, **spec), {ENDPOINT_KEYS["builder"]: KEY}
        )
    monkeypatch.setitem(http_exchange.ADDRESSES, played.vendor, played.address)
    return ModelBuilder(BuilderSpec.model_validate(spec | {"vendor": played.vendor}), {KEYS[played.vendor]: KEY})


def in_the_last(change: Callable[[ConversationMessage], ConversationMessage]) -> Spoil:
    """Return what changes the last message of a request, once there is more than one."""
    return lambda messages: (*messages[:-1], change(messages[-1])) if len(messages) > 1 else messages


def in_the_answer(change: Callable[[ConversationMessage], ConversationMessage]) -> Spoil:
    """Return what changes the model's last answer as it is sent back, put together from its text and calls alone."""

    def spoil(messages: tuple[ConversationMessage, ...]) -> tuple[ConversationMessage, ...]:
        if len(messages) == 1:
            return messages
        return (*messages[:-2], change(messages[-2])._replace(verbatim=""), messages[-1])

    return spoil


def other_arguments(message: ConversationMessage) -> ConversationMessage:
    first, *rest = message.calls
    return message._replace(calls=(first, *(tool_call.model_copy(update={"arguments": "{}"}) for tool_call in rest)))


def other_ids(message: ConversationMessage) -> ConversationMessage:
    return message._replace(
        results=tuple(result.model_copy(update={"call": "toolu_9_9"}) for result in message.results)
    )


def invented(message: ConversationMessage) -> ConversationMessage:
    return message._replace(
        calls=tuple(tool_call.model_copy(update={"id": f"{tool_call.id}x"}) for tool_call in message.calls)
    )


SPOILT: dict[str, tuple[Spoil, str]] = {
    "a result dropped": (in_the_last(lambda message: message._replace(results=message.results[:1])), "asked were"),
    "all results dropped": (in_the_last(lambda message: ConversationMessage("user", text="go on")), "results of []"),
    "results in another order": (
        in_the_last(lambda message: message._replace(results=message.results[::-1])),
        "asked were",
    ),
    "a result twice": (in_the_last(lambda message: message._replace(results=message.results * 2)), "asked were"),
    "a result of another id": (in_the_last(other_ids), "toolu_9_9"),
    "a call dropped": (in_the_answer(lambda message: message._replace(calls=message.calls[:1])), "asked were"),
    "a call altered": (in_the_answer(other_arguments), "was another"),
    "a call invented": (in_the_answer(invented), "was never made"),
    "the answer left out": (lambda messages: messages[:1] + messages[2:], "asked were []"),
    "the brief left out": (lambda messages: messages[1:] or messages, "does not begin with the user"),
    "a question too many": (lambda messages: (*messages, ConversationMessage("user", text="well?")), "two in a row"),
    "an empty text": (in_the_last(lambda message: message._replace(text=" ")), "empty text"),
    "the key in a text": (in_the_last(lambda message: message._replace(text=KEY)), "the key is in the body"),
}


def test_the_builder_as_it_is_is_not_complained_about(vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert played_with(vendor, monkeypatch) == []


@pytest.mark.parametrize("name", SPOILT)
def test_a_spoilt_conversation_is_complained_about(vendor: str, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    spoil, complaint = SPOILT[name]
    messages = played_with(vendor, monkeypatch, spoil)
    assert any(complaint in text for text in messages), messages


TOOL = {"name": "look", "description": "Look.", "input_schema": {"type": "object", "properties": {}}}
MARK = {"type": "ephemeral"}
GOOD: dict[str, Any] = {
    "model": "m",
    "max_tokens": 10,
    "system": [{"type": "text", "text": "s", "cache_control": MARK}],
    "tools": [TOOL | {"cache_control": MARK}],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "t"}]}],
    "stream": True,
}
HEADERS = {"content-type": "application/json", "x-api-key": KEY, "anthropic-version": ANTHROPIC_VERSION}
MARKED = [{"type": "text", "text": "t", "cache_control": MARK}] * 3
SIGNED = {"type": "thinking", "thinking": "t", "signature": "s", "cache_control": MARK}

BODIES: dict[str, tuple[dict[str, Any], str]] = {
    "no tools": (GOOD | {"tools": []}, "no tools"),
    "a tool twice": (GOOD | {"tools": [TOOL, TOOL | {"cache_control": MARK}]}, "2 tools 'look'"),
    "a schema that is none": (
        GOOD | {"tools": [TOOL | {"input_schema": {"type": "object", "properties": 3}, "cache_control": MARK}]},
        "is none",
    ),
    "a schema of a list": (
        GOOD | {"tools": [TOOL | {"input_schema": {"type": "array"}, "cache_control": MARK}]},
        "not that of an object",
    ),
    "a name with a space": (GOOD | {"tools": [TOOL | {"name": "a b", "cache_control": MARK}]}, "cannot be a tool's"),
    "an unknown field": (GOOD | {"effort": "high"}, "Extra inputs"),
    "five marks": (GOOD | {"messages": [{"role": "user", "content": MARKED}]}, "5 cache marks"),
    "a mark of another type": (
        GOOD | {"messages": [{"role": "user", "content": [MARKED[0] | {"cache_control": {"type": "hours"}}]}]},
        "of another type",
    ),
    "a mark on thinking": (
        GOOD | {"messages": [*GOOD["messages"], {"role": "assistant", "content": [SIGNED]}, *GOOD["messages"]]},
        "mark on thinking",
    ),
    "no mark on the tools": (GOOD | {"tools": [TOOL]}, "no cache mark at the end of tools"),
    "no mark on the system": (GOOD | {"system": [{"type": "text", "text": "s"}]}, "no cache mark at the end of system"),
    "a secret": (GOOD | {"system": [GOOD["system"][0] | {"text": "the canary sings"}]}, "a secret is in the body"),
}


def post(
    played: Played, body: dict[str, Any], path: str = "/v1/messages", headers: dict[str, str] = HEADERS
) -> httpx2.Response:
    # Not through the client under test, which would not send most of this.
    with httpx2.Client() as client:
        return client.post(played.address + path, content=json.dumps(body).encode(), headers=headers)


def test_a_good_body_is_not_complained_about() -> None:
    with scripted_builder(ANTHROPIC, [LAUNCH], canaries=("canary",)) as played:
        post(played, GOOD)
        assert played.complaints() == []


@pytest.mark.parametrize("name", BODIES)
def test_a_bad_body_is_complained_about(name: str) -> None:
    body, complaint = BODIES[name]
    with scripted_builder(ANTHROPIC, [LAUNCH], canaries=("canary",)) as played:
        post(played, body)
        messages = played.complaints()
    assert any(complaint in text for text in messages), messages


def test_a_request_without_a_key_or_at_another_place_is_complained_about() -> None:
    with scripted_builder(ANTHROPIC, [LAUNCH, LAUNCH]) as played:
        post(played, GOOD, headers={name: value for name, value in HEADERS.items() if name != "x-api-key"})
        post(played, GOOD, "/v1/elsewhere")
        assert [
            complaint
            for complaint in played.complaints()
            if "0 headers with a key" in complaint or "there is no" in complaint
        ] == [
            "request 1: 0 headers with a key",
            "request 2: there is no /v1/elsewhere",
        ]


def test_a_repeat_too_soon_or_of_what_does_not_pass_or_changed_is_complained_about() -> None:
    soon, never = failed(ANTHROPIC, 429, retry_after="30"), failed(ANTHROPIC, 401)
    with scripted_builder(ANTHROPIC, [soon, never, LAUNCH]) as played:
        for tokens in (10, 10, 11):
            post(played, GOOD | {"max_tokens": tokens})
        message = " ".join(played.complaints())
    assert (
        "Retry-After said 30" in message and "status 401, which does not pass" in message and "another body" in message
    )


def test_a_script_that_is_not_played_to_its_end_or_beyond_it_is_complained_about() -> None:
    with scripted_builder(ANTHROPIC, [LAUNCH, LAUNCH]) as played:
        assert played.complaints() == ["2 turns of the script were not asked for"]
        for _ in range(3):
            post(played, GOOD)
        assert "1 requests after the end of the script" in played.complaints()


def test_a_script_that_ends_too_soon_stops_the_builder(vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted_builder(vendor, []) as played:
        with pytest.raises(BuilderUnavailable, match="status 400"):
            builder_at(played, monkeypatch).work(SmallBench())
        assert played.complaints() == ["1 requests after the end of the script"]


FLAT = {"type": "function", "name": "look", "parameters": TOOL["input_schema"], "strict": False}
NESTED = {"type": "function", "function": {"name": "look", "parameters": TOOL["input_schema"]}}
LOOSE = {"type": "object", "properties": {"x": {"type": "integer"}}, "additionalProperties": False}
CURRENT = "gpt-5.6-sol"
USER_TURN: dict[str, Any] = {"role": "user", "content": "t"}
CALLED = {"type": "function_call", "id": "fc_1_0", "call_id": "toolu_1_0", "name": "look", "arguments": "{}"}
ANSWERED = {"type": "function_call_output", "call_id": "toolu_1_0", "output": "seen"}
SEALED = "gAAAA" + base64.urlsafe_b64encode(b"thought before turn 1: ").decode()
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": SEALED}
REQUEST: dict[str, Any] = {
    "model": CURRENT,
    "instructions": "s",
    "input": [USER_TURN],
    "tools": [FLAT],
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "stream": True,
}
CHATTED: dict[str, Any] = {"model": CURRENT, "messages": [USER_TURN], "tools": [NESTED], "stream": True}
ONLY_RESPONSES = "Function tools with reasoning_effort are not supported for gpt-5.6-sol in /v1/chat/completions."


def after_a_call(*items: dict[str, Any]) -> dict[str, Any]:
    return REQUEST | {"input": [USER_TURN, *items]}


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "tools in chat completions": ("chat/completions", CHATTED, ONLY_RESPONSES),
    "tools and effort there": ("chat/completions", CHATTED | {"reasoning_effort": "low"}, ONLY_RESPONSES),
    "a tool in the other form": ("responses", REQUEST | {"tools": [NESTED]}, "Missing required parameter: 'tools[0]"),
    "a strict tool with an optional field": ("responses",
     REQUEST | {"tools": [FLAT | {"parameters": LOOSE, "strict": True}]},
     "including every key in properties. Missing 'x'."),
    "a tool that does not say that it is not strict": ("responses",
     REQUEST | {"tools": [{name: value for name, value in FLAT.items() if name != "strict"}]},
     "'additionalProperties' is required"),
    "the effort of the other API": ("responses", REQUEST | {"reasoning_effort": "low"}, "moved to 'reasoning.effort'"),
    "reasoning of a model that has none": ("responses", REQUEST | {"model": "gpt-4.1"}, "Encrypted content is not"),
    "an orphan output": ("responses", after_a_call(ANSWERED), "No tool call found for function call output"),
    "a call without its output": ("responses", after_a_call(THOUGHT, CALLED), "No tool output found for function"),
    "a call without its reasoning": ("responses", after_a_call(CALLED, ANSWERED), "its required 'reasoning' item"),
    "reasoning without its call": ("responses", after_a_call(THOUGHT), "without its required following item"),
    "reasoning that is not sealed": ("responses",
     after_a_call({"type": "reasoning", "id": "rs_1", "summary": []}, CALLED, ANSWERED),
     "Items are not persisted when `store` is set to false"),
    "reasoning that was altered": ("responses",
     after_a_call(THOUGHT | {"encrypted_content": f"{SEALED}x"}, CALLED, ANSWERED), "could not be verified"),
    "a field without a value": ("responses", after_a_call(THOUGHT | {"status": None}, CALLED, ANSWERED),
     "Invalid type for 'input[1].status': got null"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_vendor_refuses_is_refused_in_its_words(name: str) -> None:
    path, body, why = REFUSED[name]
    with scripted_builder(OPENAI, [call("look"), LAUNCH]) as played:
        post(played, REQUEST, "/v1/responses")
        answer = post(played, body, f"/v1/{path}")
    assert answer.status_code in (400, 404) and why in answer.json()["error"]["message"], answer.text
    assert any(why in complaint for complaint in played.complaints())


def test_what_the_vendor_takes_is_answered() -> None:
    with scripted_builder(OPENAI, [call("look"), LAUNCH, LAUNCH]) as played:
        post(played, REQUEST, "/v1/responses")
        assert post(played, after_a_call(THOUGHT, CALLED, ANSWERED), "/v1/responses").status_code == 200
        assert not any("refused" in complaint for complaint in played.complaints())
        # A model before the change still takes tools in chat completions.
        older = CHATTED | {"model": "gpt-4.1"}
        assert post(played, older, "/v1/chat/completions").status_code == 200


def test_a_call_without_ids_must_bring_its_reasoning_too() -> None:
    bare = {name: value for name, value in CALLED.items() if name != "id"}
    with scripted_builder(OPENAI, [call("look"), LAUNCH]) as played:
        post(played, REQUEST, "/v1/responses")
        assert post(played, after_a_call(bare, ANSWERED), "/v1/responses").status_code == 200
        assert any("comes back without its reasoning" in complaint for complaint in played.complaints())


def test_a_conversation_that_is_left_with_the_vendor_is_complained_about() -> None:
    with scripted_builder(OPENAI, [LAUNCH]) as played:
        post(played, REQUEST | {"store": True}, "/v1/responses")
        assert any("kept at the vendor's" in complaint for complaint in played.complaints())


def test_helpers_may_ask_at_once_and_no_one_else(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted_builder(ANTHROPIC, [LAUNCH, LAUNCH]) as played:
        with suppress(BuilderUnavailable):
            builder_at(played, monkeypatch).work(SmallBench())
        first, second, late = played.requests[0], replace(played.requests[0]), "before the one before had ended"
        second.started = first.started - 1

        def list_complaints(*briefs: str) -> list[str]:
            for reply, brief in zip((first, second), briefs, strict=True):
                reply.body = json.dumps({"messages": [{"role": "user", "content": brief}]}).encode()
            return [complaint for complaint in complaints((first, second), (), ()) if late in complaint]

        assert list_complaints("# Your task\n\nCount.", "# Your task\n\nName.") == []
        assert list_complaints("# Your task\n\nCount.", "# Your task\n\nCount.") == [f"request 2: {late}"]
        assert list_complaints("# The session", "# The session") == [f"request 2: {late}"]
        assert list_complaints("# The session", "# Your task\n\nCount.") == [f"request 2: {late}"]
