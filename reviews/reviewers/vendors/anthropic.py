"""Asks a model through Anthropic's Messages API, streamed, with structured output, tools and prompt caching."""

from __future__ import annotations

import json
from typing import Any, Literal, cast

from anthropic.types import (
    CacheControlEphemeralParam,
    MessageParam,
    OutputConfigParam,
    TextBlockParam,
    ToolParam,
    ToolResultBlockParam,
)

from reviews.reviewers.vendors.model_exchange import ModelQuestion, ModelReply, ModelToolCall
from specs.system.vendors.http_exchange import Api, RecordedClient
from specs.system.vendors.prices import TokenUsage
from specs.system.vendors.streams import StreamedMessage, anthropic_message
from specs.system.vendors.tool_calls import anthropic_arguments, anthropic_content, sendable_text
from specs.trail.tool_arguments import Tool

_CACHED: CacheControlEphemeralParam = {"type": "ephemeral"}


def body(question: ModelQuestion) -> dict[str, Any]:
    """Return the request."""
    output: OutputConfigParam = {"format": {"type": "json_schema", "schema": question.form.schema}}
    arguments: dict[str, Any] = {
        "model": question.model,
        # The instructions are the same every time; so is what precedes a packet in one session.
        "system": [{"type": "text", "text": question.instructions, "cache_control": _CACHED}],
        "messages": _messages(question),
        "max_tokens": question.max_output_tokens,
        "output_config": output,
    }
    if question.reasoning:
        # Effort alone shapes the text; together with adaptive thinking it says how much is thought before it. The
        # schema binds the text only, so the two go together.
        # The rules of the spec refuse what Anthropic does not have.
        output["effort"] = cast(Literal["low", "medium", "high", "xhigh", "max"], question.reasoning)
        arguments["thinking"] = {"type": "adaptive"}
    if question.tools:
        arguments["tools"] = [_tool(tool) for tool in question.tools]
        arguments["tool_choice"] = {"type": "auto" if question.may_call else "none"}
    return arguments


def send(question: ModelQuestion, api: Api, http: RecordedClient) -> ModelReply:
    """Send one request, once.

    Raises:
        AnthropicError: the API refused, was not reached or timed out.
        NotWhole: the stream ended before the message.
    """
    events = api.anthropic(http).messages.create(**body(question), stream=True, timeout=question.timeout_s)
    return read(anthropic_message(events), has_tools=bool(question.tools))


def _messages(question: ModelQuestion) -> list[MessageParam]:
    """Return the conversation. What a next request begins with is marked: after a call there is one."""
    first: list[TextBlockParam] = [_text(question.head, marked=True)] if question.head else []
    first.append(_text(question.text, marked=bool(question.tools)))
    whole = question.text if not (question.head or question.tools) else first
    message_params: list[MessageParam] = [{"role": "user", "content": whole}]
    for number, value in enumerate(question.rounds, 1):
        message_params.append({"role": "assistant", "content": json.loads(value.vendor_json)})
        results: list[ToolResultBlockParam] = [
            {"type": "tool_result", "tool_use_id": each.call, "content": each.text, "is_error": each.is_error}
            for each in value.results
        ]
        if number == len(question.rounds):
            results[-1]["cache_control"] = _CACHED
        message_params.append({"role": "user", "content": results})
    for role, text in question.once_more():
        message_params.append(
            {"role": "user", "content": text} if role == "user" else {"role": "assistant", "content": text}
        )
    return message_params


def _text(text: str, *, marked: bool) -> TextBlockParam:
    block: TextBlockParam = {"type": "text", "text": text}
    if marked:
        block["cache_control"] = _CACHED
    return block


def _tool(tool: Tool) -> ToolParam:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.schema()}


def read(message: StreamedMessage, *, has_tools: bool = False) -> ModelReply:
    """Take model, usage, text and calls out of a message, and say when the text cannot be whole."""
    counted = message.counts
    usage = None
    input_tokens, answered = counted.get("input_tokens"), counted.get("output_tokens")
    written = counted.get("cache_creation_input_tokens") or 0
    if input_tokens is not None and answered is not None:
        cached = counted.get("cache_read_input_tokens") or 0
        usage = TokenUsage(input_tokens + cached + written, answered, cached)
    texts = [block for block in message.blocks if block["type"] == "text"]
    text = "".join(piece for text in texts for piece in (text["text"], *text["pieces"]))
    if has_tools and message.stop == "tool_use":
        uses = [block for block in message.blocks if block["type"] == "tool_use"]
        calls = tuple(ModelToolCall(use["id"], sendable_text([use["name"]]), anthropic_arguments(use)) for use in uses)
        if calls:
            reported_text = anthropic_content(message.blocks)
            return ModelReply(
                message.model, usage, text, written_tokens=written, calls=calls, vendor_json=reported_text
            )
    unusable = "" if message.stop == "end_turn" else f"the answer ended with '{message.stop}'"
    if message.stop == "refusal":
        unusable = "the model refused"
    elif message.stop == "max_tokens":
        unusable = "the answer is incomplete (max_tokens)"
    cause = "refused" if message.stop == "refusal" else "incomplete"
    return ModelReply(message.model, usage, text, unusable, cause, written)
