"""Asks a model for a turn through chat completions: streamed, with tools, at an endpoint of one's own.

OpenAI itself refuses tools there for its current models (``agents/providers/openai.py`` asks those).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from openai.types.chat import (
    ChatCompletionAssistantMessageParam,
    ChatCompletionChunk,
    ChatCompletionMessageParam,
    ChatCompletionToolParam,
)
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

from agents.providers.turn_request import (
    NO_TEXT,
    Asking,
    NotWhole,
    Reply,
    schema_of,
    sendable_arguments,
    sendable_name,
    sendable_text,
)
from agents.turns import Message, Stop, ToolCall
from specs.vendors.http_exchange import Api, RecordedClient
from specs.vendors.prices import Usage

_STOPS: dict[str | None, Stop] = {
    "tool_calls": "tool_use",
    "stop": "end",
    "length": "length",
    "content_filter": "refusal",
}


def body(asking: Asking) -> CompletionCreateParamsStreaming:
    """Return the request. The same asking gives the same bytes, and a longer conversation begins with the same ones."""
    tools: list[ChatCompletionToolParam] = [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": schema_of(tool)},
        }
        for tool in asking.tools
    ]
    messages: list[ChatCompletionMessageParam] = [{"role": "system", "content": asking.system}]
    for message in asking.messages:
        messages += _messages(message)
    given: CompletionCreateParamsStreaming = {
        "model": asking.model,
        "messages": messages,
        "tools": tools,
        "stream": True,
        "stream_options": {"include_usage": True},
        # Not max_completion_tokens: a server that does not know a field passes over it, and this one bounds the cost.
        "max_tokens": asking.max_output_tokens,
    }
    if asking.reasoning:
        given["reasoning_effort"] = asking.reasoning
    return given


def send(asking: Asking, api: Api, http: RecordedClient) -> Reply:
    """Send one request; nothing is repeated here.

    Raises:
        OpenAIError: the API refused, was not reached, timed out or reported an error in the stream.
        NotWhole: the stream ended without a reason to stop.
    """
    with api.openai(http).chat.completions.create(**body(asking), timeout=asking.timeout_s) as stream:
        return read(stream)


def read(chunks: Iterable[ChatCompletionChunk]) -> Reply:
    """Put the pieces of a stream together.

    Raises:
        NotWhole: the stream ended before the answer did, or for a reason that makes it no answer.
    """
    model, finish, usage = "", None, None
    texts: list[str] = []
    refusals: list[str] = []
    calls: dict[int, dict[str, str]] = {}
    for chunk in chunks:
        model = chunk.model or model
        if chunk.usage is not None:
            details = chunk.usage.prompt_tokens_details
            cached = details.cached_tokens if details else 0
            usage = Usage(chunk.usage.prompt_tokens, chunk.usage.completion_tokens, cached or 0)
        for choice in chunk.choices:
            if choice.index != 0:
                raise NotWhole(f"the answer has a choice {choice.index}, one was asked for")
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
        raise NotWhole(f"the stream ended with finish reason '{finish}'")
    return _reply(model, _STOPS[finish], sendable_text(texts), sendable_text(refusals), calls, usage)


def _reply(
    model: str, stop: Stop, text: str, refusal: str, calls: dict[int, dict[str, str]], usage: Usage | None
) -> Reply:
    if refusal:
        return Reply(model, text or refusal, (), "refusal", usage)
    if stop == "end" and calls:
        # Some servers end an answer with calls like any other.
        stop = "tool_use"
    found = tuple(
        ToolCall(
            id=calls[index]["id"],
            name=sendable_text([calls[index]["name"]]),
            arguments=sendable_text([calls[index]["arguments"]]),
        )
        for index in sorted(calls)
        if stop == "tool_use"
    )
    return Reply(model, text, found, "end" if stop == "tool_use" and not found else stop, usage)


def _messages(message: Message) -> Iterator[ChatCompletionMessageParam]:
    if message.role == "assistant":
        yield _assistant(message)
        return
    for result in message.results:
        yield {"role": "tool", "tool_call_id": result.call, "content": result.text}
    if message.text:
        yield {"role": "user", "content": message.text}


def _assistant(message: Message) -> ChatCompletionAssistantMessageParam:
    said: str | None = message.text if message.text.strip() else None
    if not message.calls:
        return {"role": "assistant", "content": said or NO_TEXT}
    return {
        "role": "assistant",
        "content": said,
        "tool_calls": [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": sendable_name(call.name), "arguments": sendable_arguments(call.arguments)},
            }
            for call in message.calls
        ],
    }
