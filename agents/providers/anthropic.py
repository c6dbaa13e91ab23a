"""Asks a model for a turn through Anthropic's Messages API: streamed, with tools and prompt caching."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, cast

from anthropic.types import (
    ContentBlockParam,
    MessageParam,
    OutputConfigParam,
    RawMessageStreamEvent,
    TextBlockParam,
    ToolParam,
    ToolResultBlockParam,
)
from anthropic.types.message_create_params import MessageCreateParamsStreaming

from agents.providers.turn_request import (
    NO_TEXT,
    Asking,
    NotWhole,
    Reply,
    readable,
    schema_of,
    sendable_name,
    sendable_text,
)
from agents.turns import Message, Stop, ToolCall
from specs.vendors.http_exchange import Api, RecordedClient
from specs.vendors.prices import Usage

_STOPS: dict[str | None, Stop] = {
    "tool_use": "tool_use",
    "end_turn": "end",
    "stop_sequence": "end",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}


def body(asking: Asking) -> MessageCreateParamsStreaming:
    """Return the request. The same asking gives the same bytes, and a longer conversation begins with the same ones."""
    tools: list[ToolParam] = [
        {"name": tool.name, "description": tool.description, "input_schema": schema_of(tool)} for tool in asking.tools
    ]
    # Four places may be marked. The cache holds tools, system and the conversation up to a mark; the newest message
    # is marked for the next turn, the one before because it was marked for this one.
    if tools:
        tools[-1]["cache_control"] = {"type": "ephemeral"}
    newest = [index for index, one in enumerate(asking.messages) if one.role == "user"][-2:]
    given: MessageCreateParamsStreaming = {
        "model": asking.model,
        "max_tokens": asking.max_output_tokens,
        "system": [{"type": "text", "text": asking.system, "cache_control": {"type": "ephemeral"}}],
        "tools": tools,
        "messages": [_message(one, cached=index in newest) for index, one in enumerate(asking.messages)],
        "stream": True,
    }
    if asking.reasoning:
        given["thinking"] = {"type": "adaptive"}
        effort: OutputConfigParam = {"effort": asking.reasoning}
        given["output_config"] = effort
    return given


def send(asking: Asking, api: Api, http: RecordedClient) -> Reply:
    """Send one request; nothing is repeated here.

    Raises:
        AnthropicError: the API refused, was not reached, timed out or reported an error in the stream.
        NotWhole: the stream ended without a reason to stop.
    """
    with api.anthropic(http).messages.create(**body(asking), timeout=asking.timeout_s) as stream:
        return read(stream)


def read(events: Iterable[RawMessageStreamEvent]) -> Reply:
    """Put the pieces of a stream together.

    The SDK's own helper parses arguments while they arrive; here they stay as the model wrote them.

    Raises:
        NotWhole: the stream ended before the message did, or for a reason that makes it no answer.
    """
    model, stop, ended = "", None, False
    counts: dict[str, int | None] = {}
    blocks: dict[int, dict[str, Any]] = {}
    for event in events:
        if event.type == "message_start":
            model = event.message.model
            counts |= vars(event.message.usage)
        elif event.type == "content_block_start":
            blocks[event.index] = {**vars(event.content_block), "pieces": [], "signature": ""}
        elif event.type == "content_block_delta":
            block, delta = blocks[event.index], event.delta
            if delta.type == "text_delta":
                block["pieces"].append(delta.text)
            elif delta.type == "input_json_delta":
                block["pieces"].append(delta.partial_json)
            elif delta.type == "thinking_delta":
                block["pieces"].append(delta.thinking)
            elif delta.type == "signature_delta":
                block["signature"] += delta.signature
        elif event.type == "message_delta":
            stop = event.delta.stop_reason
            # Cumulative; what a later event does not count keeps its first count.
            counts |= {name: count for name, count in vars(event.usage).items() if count is not None}
        elif event.type == "message_stop":
            ended = True
    if not ended or stop not in _STOPS:
        raise NotWhole(f"the stream ended {'with' if ended else 'before the message did, with'} stop reason '{stop}'")
    return _reply(model, _STOPS[stop], [blocks[index] for index in sorted(blocks)], counts)


def _reply(model: str, stop: Stop, blocks: list[dict[str, Any]], counts: dict[str, int | None]) -> Reply:
    texts = [one for one in blocks if one["type"] == "text"]
    calls = [_call(one) for one in blocks if one["type"] == "tool_use"] if stop == "tool_use" else []
    read_tokens, written = counts.get("cache_read_input_tokens") or 0, counts.get("cache_creation_input_tokens") or 0
    usage = None
    asked, answered = counts.get("input_tokens"), counts.get("output_tokens")
    if asked is not None and answered is not None:
        usage = Usage(asked + read_tokens + written, answered, read_tokens)
    return Reply(
        model=model,
        text=sendable_text(piece for one in texts for piece in (one["text"], *one["pieces"])),
        calls=tuple(calls),
        stop="end" if stop == "tool_use" and not calls else stop,
        usage=usage,
        written_tokens=written,
        verbatim=_verbatim(blocks) if calls else "",
    )


def _call(block: dict[str, Any]) -> ToolCall:
    pieces = "".join(block["pieces"]) or json.dumps(block["input"] or {})
    return ToolCall(id=block["id"], name=sendable_text([block["name"]]), arguments=sendable_text([pieces]))


def _verbatim(blocks: list[dict[str, Any]]) -> str:
    """Return the answer as it has to go back, if there is thinking in it: signed, and in its place."""
    if not any(one["type"] in ("thinking", "redacted_thinking") for one in blocks):
        return ""
    given: list[dict[str, Any]] = []
    for one in blocks:
        joined = "".join(one["pieces"])
        if one["type"] == "thinking":
            text = one["thinking"] + joined
            given.append({"type": "thinking", "thinking": text, "signature": one["signature"]})
        elif one["type"] == "redacted_thinking":
            given.append({"type": "redacted_thinking", "data": one["data"]})
        elif one["type"] == "text" and (one["text"] + joined).strip():
            given.append({"type": "text", "text": one["text"] + joined})
        elif one["type"] == "tool_use":
            given.append(_tool_use(_call(one)))
    return sendable_text([json.dumps(given, ensure_ascii=False)])


def _message(message: Message, *, cached: bool) -> MessageParam:
    content = list(_assistant(message) if message.role == "assistant" else _user(message))
    if cached:
        last = cast(dict[str, Any], content[-1])
        last["cache_control"] = {"type": "ephemeral"}
    if message.role == "assistant":
        return {"role": "assistant", "content": content}
    return {"role": "user", "content": content}


def _user(message: Message) -> Iterator[ContentBlockParam]:
    for result in message.results:
        block: ToolResultBlockParam = {
            "type": "tool_result",
            "tool_use_id": result.call,
            "content": result.text,
            "is_error": result.is_error,
        }
        yield block
    if message.text:
        yield _text(message.text)


def _assistant(message: Message) -> Iterator[ContentBlockParam]:
    if message.verbatim:
        yield from cast(list[ContentBlockParam], json.loads(message.verbatim))
        return
    if message.text.strip() or not message.calls:
        yield _text(message.text if message.text.strip() else NO_TEXT)
    for call in message.calls:
        yield cast(ContentBlockParam, _tool_use(call))


def _tool_use(call: ToolCall) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": call.id,
        "name": sendable_name(call.name),
        "input": readable(call.arguments),
    }


def _text(text: str) -> TextBlockParam:
    return {"type": "text", "text": text}
