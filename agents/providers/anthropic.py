"""Asks a model for a turn through Anthropic's Messages API: streamed, with tools and prompt caching."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from anthropic.types import RawMessageStreamEvent

from agents.providers.turn_request import Asking, VendorReply, call_of, schema_of
from agents.turns import ConversationMessage, Stop, ToolCall, ToolResult
from specs.system.vendors.http_exchange import Api, RecordedClient
from specs.system.vendors.prices import TokenUsage
from specs.system.vendors.streams import IncompleteStream, anthropic_message
from specs.system.vendors.tool_calls import (
    NO_TEXT,
    anthropic_arguments,
    anthropic_content,
    readable,
    sendable_name,
    sendable_text,
)

_STOPS: dict[str | None, Stop] = {
    "tool_use": "tool_use",
    "end_turn": "end",
    "stop_sequence": "end",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}


_CACHED = {"cache_control": {"type": "ephemeral"}}
_CACHED_FOR_AN_HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def body(asking: Asking) -> dict[str, Any]:
    """Return the request. The same asking gives the same bytes; a longer conversation begins with the same bytes."""
    tools: list[dict[str, Any]] = [
        {"name": tool.name, "description": tool.description, "input_schema": schema_of(tool)} for tool in asking.tools
    ]
    # Four places may be marked. The cache holds tools, system and the conversation up to a mark; the newest message
    # is marked for the next turn, the previous one because it was marked for this turn.
    # Tools and instructions are the same in every phase of a session, so they may be kept while a job runs.
    fixed = _CACHED_FOR_AN_HOUR if asking.hour else _CACHED
    if tools:
        tools[-1] |= fixed
    newest = [index for index, message in enumerate(asking.messages) if message.role == "user"][-2:]
    arguments = {
        "model": asking.model,
        "max_tokens": asking.max_output_tokens,
        "system": [_text(asking.system) | fixed],
        "tools": tools,
        "messages": [_message(message, cached=index in newest) for index, message in enumerate(asking.messages)],
        "stream": True,
    }
    if asking.reasoning:
        arguments |= {"thinking": {"type": "adaptive"}, "output_config": {"effort": asking.reasoning}}
    return arguments


def endpoint(api: Api, http: RecordedClient) -> Callable[..., Any]:
    """Return the SDK's function that sends a request and returns its stream."""
    return api.anthropic(http).messages.create


def read(events: Iterable[RawMessageStreamEvent]) -> VendorReply:
    """Return the pieces of a stream as one reply; raises NotWhole if the answer is not whole."""
    message = anthropic_message(events)
    if message.stop not in _STOPS:
        raise IncompleteStream(f"the stream ended with stop reason '{message.stop}'")
    return _reply(message.model, _STOPS[message.stop], message.blocks, message.counts)


def _reply(model: str, stop: Stop, blocks: list[dict[str, Any]], counts: dict[str, int | None]) -> VendorReply:
    texts = [block for block in blocks if block["type"] == "text"]
    calls = [_call(block) for block in blocks if block["type"] == "tool_use"] if stop == "tool_use" else []
    read_tokens, written = counts.get("cache_read_input_tokens") or 0, counts.get("cache_creation_input_tokens") or 0
    usage = None
    input_tokens, answered = counts.get("input_tokens"), counts.get("output_tokens")
    if input_tokens is not None and answered is not None:
        usage = TokenUsage(input_tokens + read_tokens + written, answered, read_tokens)
    return VendorReply(
        model=model,
        text=sendable_text(piece for text in texts for piece in (text["text"], *text["pieces"])),
        calls=tuple(calls),
        stop="end" if stop == "tool_use" and not calls else stop,
        usage=usage,
        written_tokens=written,
        hour_tokens=getattr(counts.get("cache_creation"), "ephemeral_1h_input_tokens", None),
        verbatim=_verbatim(blocks) if calls else "",
    )


def _call(block: dict[str, Any]) -> ToolCall:
    return call_of(block["id"], block["name"], anthropic_arguments(block))


def _verbatim(blocks: list[dict[str, Any]]) -> str:
    """Return the answer as it has to go back if it holds thinking: signed, and in its place."""
    if not any(block["type"] in ("thinking", "redacted_thinking") for block in blocks):
        return ""
    return anthropic_content(blocks)


def _message(message: ConversationMessage, *, cached: bool) -> dict[str, Any]:
    content = list(_blocks(message))
    if cached:
        content[-1] |= _CACHED
    return {"role": message.role, "content": content}


def _blocks(message: ConversationMessage) -> Iterator[dict[str, Any]]:
    if message.role == "user":
        for result in message.results:
            yield {
                "type": "tool_result",
                "tool_use_id": result.call,
                "content": _format_result(result),
                "is_error": result.is_error,
            }
        if message.text:
            yield _text(message.text)
    elif message.verbatim:
        yield from json.loads(message.verbatim)
    else:
        if message.text.strip() or not message.calls:
            yield _text(message.text if message.text.strip() else NO_TEXT)
        yield from map(_tool_use, message.calls)


def _format_result(result: ToolResult) -> str | list[dict[str, Any]]:
    if not result.image:
        return result.text
    source = {"type": "base64", "media_type": "image/png", "data": result.image}
    return [_text(result.text), {"type": "image", "source": source}]


def _tool_use(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": sendable_name(call.name), "input": readable(call.arguments)}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
