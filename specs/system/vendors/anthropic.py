"""Anthropic's Messages API: streamed, with tools, structured answers and prompt caching."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from anthropic.types import RawMessageStreamEvent

from specs.system.vendors.conversation import (
    ConversationMessage,
    ModelReply,
    ModelRequest,
    ReplyStop,
    Stop,
    ToolCall,
    ToolResult,
    call_of,
    schema_of,
)
from specs.system.vendors.http_exchange import Api, RecordedClient
from specs.system.vendors.prices import TokenUsage
from specs.system.vendors.streams import anthropic_message
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


def body(request: ModelRequest) -> dict[str, Any]:
    """Return the arguments of the SDK's function.

    The API takes four marks of what its cache keeps; a mark covers what precedes it, tools before instructions before
    messages. Tools and instructions are the same in every phase of a session, so they may be kept while a job runs.
    Of the messages the newest of the user is marked for the next request, the previous because it was marked for
    this one. A request without tools is not continued, so only the head of its message is marked.
    """
    fixed = _CACHED_FOR_AN_HOUR if request.hour else _CACHED
    newest = [index for index, message in enumerate(request.messages) if message.role == "user"][-2:]
    arguments: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_output_tokens,
        "system": [_text(request.system) | fixed],
        "messages": [
            _message(message, cached=bool(request.tools) and index in newest)
            for index, message in enumerate(request.messages)
        ],
        "stream": True,
    }
    if request.tools:
        tools: list[dict[str, Any]] = [
            {"name": tool.name, "description": tool.description, "input_schema": schema_of(tool)}
            for tool in request.tools
        ]
        if not any(message.head for message in request.messages):
            tools[-1] |= fixed
        arguments["tools"] = tools
        if not request.may_call:
            arguments["tool_choice"] = {"type": "none"}
    output: dict[str, Any] = {}
    if request.form is not None:
        output["format"] = {"type": "json_schema", "schema": request.form.schema}
    if request.reasoning:
        # Effort alone shapes the text; with adaptive thinking it says how much is thought before it. A schema binds
        # the text only, so all three go together.
        arguments["thinking"] = {"type": "adaptive"}
        output["effort"] = request.reasoning
    return arguments | ({"output_config": output} if output else {})


def endpoint(api: Api, http: RecordedClient) -> Callable[..., Any]:
    """Return the SDK's function that sends a request and returns its stream."""
    return api.anthropic(http).messages.create


def read(events: Iterable[RawMessageStreamEvent]) -> ModelReply:
    """Return the reply of a stream; raises IncompleteStream if it ends before the message does."""
    message = anthropic_message(events)
    stop: ReplyStop = _STOPS.get(message.stop, "failed")
    counts = message.counts
    read_tokens, written = counts.get("cache_read_input_tokens") or 0, counts.get("cache_creation_input_tokens") or 0
    usage = None
    input_tokens, output_tokens = counts.get("input_tokens"), counts.get("output_tokens")
    if input_tokens is not None and output_tokens is not None:
        usage = TokenUsage(input_tokens + read_tokens + written, output_tokens, read_tokens)
    texts = [block for block in message.blocks if block["type"] == "text"]
    calls = [_call(block) for block in message.blocks if block["type"] == "tool_use"] if stop == "tool_use" else []
    thinks = any(block["type"] in ("thinking", "redacted_thinking") for block in message.blocks)
    return ModelReply(
        model=message.model,
        text=sendable_text(piece for text in texts for piece in (text["text"], *text["pieces"])),
        calls=tuple(calls),
        stop="end" if stop == "tool_use" and not calls else stop,
        reason=str(message.stop) if stop != "failed" else f"stop reason '{message.stop}'",
        usage=usage,
        written_tokens=written,
        hour_tokens=getattr(counts.get("cache_creation"), "ephemeral_1h_input_tokens", None),
        # Thinking has to go back signed, and in its place.
        verbatim=anthropic_content(message.blocks) if calls and thinks else "",
    )


def _call(block: dict[str, Any]) -> ToolCall:
    return call_of(block["id"], block["name"], anthropic_arguments(block))


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
        if message.head:
            yield _text(message.head) | _CACHED
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
