"""Asks a model for a turn through chat completions: streamed, with tools, at the user's endpoint.

OpenAI itself refuses tools in chat completions for its current models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from openai.types.chat import ChatCompletionChunk

from agents.providers.turn_request import (
    NO_TEXT,
    Asking,
    VendorReply,
    call_of,
    schema_of,
    sendable_function,
    sendable_text,
)
from agents.turns import ConversationMessage, Stop
from specs.system.vendors.http_exchange import Api, RecordedClient
from specs.system.vendors.prices import TokenUsage
from specs.system.vendors.streams import IncompleteStream

_STOPS: dict[str | None, Stop] = {
    "tool_calls": "tool_use",
    "stop": "end",
    "length": "length",
    "content_filter": "refusal",
}


def body(asking: Asking) -> dict[str, Any]:
    """Return the request. The same asking gives the same bytes; a longer conversation begins with the same bytes."""
    functions = [
        {"name": tool.name, "description": tool.description, "parameters": schema_of(tool)} for tool in asking.tools
    ]
    statements = (current_message for message in asking.messages for current_message in _messages(message))
    arguments: dict[str, Any] = {
        "model": asking.model,
        "messages": [{"role": "system", "content": asking.system}, *statements],
        "tools": [{"type": "function", "function": function} for function in functions],
        "stream": True,
        "stream_options": {"include_usage": True},
        # Servers ignore fields they do not know, max_completion_tokens among them; this field bounds the cost.
        "max_tokens": asking.max_output_tokens,
    }
    if asking.reasoning:
        arguments["reasoning_effort"] = asking.reasoning
    return arguments


def endpoint(api: Api, http: RecordedClient) -> Callable[..., Any]:
    """Return the SDK's function that sends a request and returns its stream."""
    return api.openai(http).chat.completions.create


def read(chunks: Iterable[ChatCompletionChunk]) -> VendorReply:
    """Return the pieces of a stream as one reply; raises NotWhole if the answer is not whole."""
    model, finish, usage = "", None, None
    texts: list[str] = []
    refusals: list[str] = []
    calls: dict[int, dict[str, str]] = {}
    for chunk in chunks:
        model = chunk.model or model
        if chunk.usage is not None:
            details = chunk.usage.prompt_tokens_details
            cached = details.cached_tokens if details else 0
            usage = TokenUsage(chunk.usage.prompt_tokens, chunk.usage.completion_tokens, cached or 0)
        for choice in chunk.choices:
            if choice.index != 0:
                raise IncompleteStream(f"the answer has a choice {choice.index}, one was asked for")
            finish = choice.finish_reason or finish
            texts.append(choice.delta.content or "")
            refusals.append(choice.delta.refusal or "")
            for piece in choice.delta.tool_calls or ():
                call = calls.setdefault(piece.index, {"id": "", "name": "", "arguments": ""})
                call["id"] = piece.id or call["id"]
                if piece.function is not None:
                    call["name"] += piece.function.name or ""
                    call["arguments"] += piece.function.arguments or ""
    if finish not in _STOPS:
        raise IncompleteStream(f"the stream ended with finish reason '{finish}'")
    return _reply(model, _STOPS[finish], sendable_text(texts), sendable_text(refusals), calls, usage)


def _reply(
    model: str, stop: Stop, text: str, refusal: str, calls: dict[int, dict[str, str]], usage: TokenUsage | None
) -> VendorReply:
    if refusal:
        return VendorReply(model, text or refusal, (), "refusal", usage)
    if stop == "end" and calls:
        stop = "tool_use"  # Some servers end an answer with calls like any other.
    tool_calls = tuple(call_of(**calls[index]) for index in sorted(calls) if stop == "tool_use")
    return VendorReply(model, text, tool_calls, "end" if stop == "tool_use" and not tool_calls else stop, usage)


def _messages(message: ConversationMessage) -> Iterator[dict[str, Any]]:
    for result in message.results:
        yield {"role": "tool", "tool_call_id": result.call, "content": result.text}
    if message.role == "user":
        if message.text:
            yield {"role": "user", "content": message.text}
        return
    text = message.text if message.text.strip() else None
    if not message.calls:
        yield {"role": "assistant", "content": text or NO_TEXT}
        return
    calls = [{"id": call.id, "type": "function", "function": sendable_function(call)} for call in message.calls]
    yield {"role": "assistant", "content": text, "tool_calls": calls}
