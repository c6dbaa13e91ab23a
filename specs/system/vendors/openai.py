"""OpenAI's Responses API: streamed, with tools and structured answers, and with nothing stored there.

OpenAI keeps no conversation (``store`` is false) and refuses a call without the reasoning that led to it, and reasoning
without its call, so every item of an answer with calls goes back as it came.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from openai.types.responses import Response, ResponseStreamEvent

from specs.system.vendors.conversation import (
    ConversationMessage,
    ModelReply,
    ModelRequest,
    Stop,
    ToolResult,
    call_of,
    schema_of,
    sendable_function,
)
from specs.system.vendors.http_exchange import Api, RecordedClient
from specs.system.vendors.prices import TokenUsage
from specs.system.vendors.streams import PASSING, openai_response
from specs.system.vendors.tool_calls import NO_REASONING, NO_TEXT, openai_content, sendable_text

_INCOMPLETE: dict[str | None, Stop] = {"max_output_tokens": "length", "content_filter": "refusal"}


def body(request: ModelRequest) -> dict[str, Any]:
    """Return the arguments of the SDK's function."""
    arguments: dict[str, Any] = {
        "model": request.model,
        "instructions": request.system,
        "input": _input(request),
        "max_output_tokens": request.max_output_tokens,
        "store": False,
        "stream": True,
    }
    if request.tools:
        # `strict` is true by default, and refuses schemas with optional or free fields. Calls check their arguments.
        arguments["tools"] = [
            {"type": "function", "name": tool.name, "description": tool.description, "strict": False}
            | {"parameters": schema_of(tool)}
            for tool in request.tools
        ]
        if not request.may_call:
            arguments["tool_choice"] = "none"
        if not NO_REASONING.match(request.model):
            arguments["include"] = ["reasoning.encrypted_content"]
    if request.form is not None:
        form = {"type": "json_schema", "name": request.form.name, "schema": request.form.schema, "strict": True}
        arguments["text"] = {"format": form}
    if request.reasoning:
        arguments["reasoning"] = {"effort": request.reasoning}
    return arguments


def endpoint(api: Api, http: RecordedClient) -> Callable[..., Any]:
    """Return the SDK's function that sends a request and returns its stream."""
    return api.openai(http).responses.create


def read(events: Iterable[ResponseStreamEvent]) -> ModelReply:
    """Return the finished items of a stream as one reply; raises IncompleteStream if the response does not end."""
    response, items = openai_response(events)
    usage, written = _usage(response)
    messages = [item for item in items or response.output if item.type == "message"]
    # What a model says while it works is not its answer.
    final = [message for message in messages if message.phase != "commentary"] or messages
    parts = [part for message in final for part in message.content]
    text = sendable_text(part.text for part in parts if part.type == "output_text")
    refusals = [part.refusal for part in parts if part.type == "refusal"]
    reply = ModelReply(response.model, text, (), "end", str(response.status), usage, written)
    reason = response.incomplete_details.reason if response.incomplete_details else None
    if response.error is not None:
        failure = f"{response.error.code}: {response.error.message}"
        can_repeat = response.error.code in PASSING
        return reply._replace(stop="failed", reason=failure, can_repeat=can_repeat, is_fault=True)
    if reason in _INCOMPLETE:
        return reply._replace(stop=_INCOMPLETE[reason], reason=str(reason))
    if response.status == "failed":
        return reply._replace(stop="failed", reason="no reason given", is_fault=True)
    if response.status != "completed":
        return reply._replace(stop="failed", reason=f"status '{response.status}', reason '{reason}'")
    if refusals:
        refusal = sendable_text(refusals)
        return reply._replace(stop="refusal", reason=refusal, text=text or refusal)
    calls = tuple(call_of(item.call_id, item.name, item.arguments) for item in items if item.type == "function_call")
    reply = reply._replace(calls=calls, verbatim=openai_content(items))
    return reply._replace(stop="tool_use", reason="function_call") if calls else reply


def _usage(response: Response) -> tuple[TokenUsage | None, int]:
    """Return the tokens of an answer, and how many of the input were written into the prompt cache."""
    if response.usage is None:
        return None, 0
    # The SDK leaves out details that a server did not send.
    details = vars(response.usage.input_tokens_details) if response.usage.input_tokens_details else {}
    counted = TokenUsage(response.usage.input_tokens, response.usage.output_tokens, details.get("cached_tokens") or 0)
    return counted, details.get("cache_write_tokens") or 0


def _input(request: ModelRequest) -> str | list[dict[str, Any]]:
    """Return the conversation. A single question with a form is sent as a text: some servers take no list."""
    if request.form is not None and len(request.messages) == 1:
        return request.messages[0].head + request.messages[0].text
    return [item for message in request.messages for item in _items(message)]


def _items(message: ConversationMessage) -> Iterator[dict[str, Any]]:
    if message.role == "user":
        for result in message.results:
            yield {"type": "function_call_output", "call_id": result.call, "output": _format_result(result)}
        if message.head or message.text:
            yield {"role": "user", "content": message.head + message.text}
        return
    if message.verbatim:
        yield from json.loads(message.verbatim)
        return
    # Without ids: the API looks up an item with an id together with its reasoning.
    if message.text.strip() or not message.calls:
        yield {"role": "assistant", "content": message.text if message.text.strip() else NO_TEXT}
    for call in message.calls:
        yield {"type": "function_call", "call_id": call.id, **sendable_function(call)}


def _format_result(result: ToolResult) -> str | list[dict[str, Any]]:
    if not result.image:
        return result.text
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{result.image}", "detail": "auto"}
    return [{"type": "input_text", "text": result.text}, image]
