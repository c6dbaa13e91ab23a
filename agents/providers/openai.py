"""Asks a model for a turn through OpenAI's Responses API: streamed, with tools, and with nothing stored there.

OpenAI keeps no conversation (``store`` is false) and refuses a call without the reasoning that led to it, and reasoning
without its call, so every item of an answer with calls goes back as it came.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from openai.types.responses import Response, ResponseOutputItem, ResponseStreamEvent

from agents.providers.turn_request import Asking, VendorReply, call_of, schema_of, sendable_function
from agents.turns import ConversationMessage, Stop, ToolCall, ToolResult
from specs.system.vendors.http_exchange import Api, RecordedClient
from specs.system.vendors.prices import TokenUsage
from specs.system.vendors.streams import PASSING, IncompleteStream, openai_response
from specs.system.vendors.tool_calls import NO_REASONING, NO_TEXT, openai_content, sendable_text

_INCOMPLETE: dict[str | None, Stop] = {"max_output_tokens": "length", "content_filter": "refusal"}


def body(asking: Asking) -> dict[str, Any]:
    """Return the request. The same asking gives the same bytes; a longer conversation begins with the same bytes."""
    # `strict` is true by default, and refuses schemas with optional or free fields. Calls check their arguments.
    tools = [
        {"type": "function", "name": tool.name, "description": tool.description, "strict": False}
        | {"parameters": schema_of(tool)}
        for tool in asking.tools
    ]
    arguments: dict[str, Any] = {
        "model": asking.model,
        "instructions": asking.system,
        "input": [item for message in asking.messages for item in _items(message)],
        "tools": tools,
        "max_output_tokens": asking.max_output_tokens,
        "store": False,
        "stream": True,
    }
    if not NO_REASONING.match(asking.model):
        arguments["include"] = ["reasoning.encrypted_content"]
    if asking.reasoning:
        arguments["reasoning"] = {"effort": asking.reasoning}
    return arguments


def endpoint(api: Api, http: RecordedClient) -> Callable[..., Any]:
    """Return the SDK's function that sends a request and returns its stream."""
    return api.openai(http).responses.create


def read(events: Iterable[ResponseStreamEvent]) -> VendorReply:
    """Return the finished items of a stream as one reply; raises NotWhole if the answer is not whole."""
    response, items = openai_response(events)
    if response.status == "failed":
        failed = response.error
        text = f"{failed.code}: {failed.message}" if failed else "no reason"
        raise IncompleteStream(f"the response failed: {text}", passes=failed is None or failed.code in PASSING)
    return _reply(response, items)


def _reply(response: Response, items: list[ResponseOutputItem]) -> VendorReply:
    stop = _stop(response)
    texts: list[str] = []
    refusals: list[str] = []
    calls: list[ToolCall] = []
    for item in items:
        if item.type == "message":
            for part in item.content:
                if part.type == "output_text":
                    texts.append(part.text)
                else:
                    refusals.append(part.refusal)
        elif item.type == "function_call":
            calls.append(call_of(item.call_id, item.name, item.arguments))
    text, refusal = sendable_text(texts), sendable_text(refusals)
    usage, written = _usage(response)
    if refusals:
        return VendorReply(response.model, text or refusal, (), "refusal", usage, written)
    if stop != "end":
        return VendorReply(response.model, text, (), stop, usage, written)
    stop = "tool_use" if calls else "end"
    return VendorReply(response.model, text, tuple(calls), stop, usage, written, openai_content(items))


def _stop(response: Response) -> Stop:
    """Return why a response ended; raises NotWhole for a reason that cannot be reported to the model."""
    if response.status == "completed":
        return "end"
    reason = response.incomplete_details.reason if response.incomplete_details else None
    if response.status != "incomplete" or reason not in _INCOMPLETE:
        raise IncompleteStream(f"the stream ended with status '{response.status}', reason '{reason}'")
    return _INCOMPLETE[reason]


def _usage(response: Response) -> tuple[TokenUsage | None, int]:
    """Return the tokens of an answer, and how many of the input were written into the prompt cache."""
    if response.usage is None:
        return None, 0
    # The SDK leaves out details that a server did not send.
    details = vars(response.usage.input_tokens_details) if response.usage.input_tokens_details else {}
    counted = TokenUsage(response.usage.input_tokens, response.usage.output_tokens, details.get("cached_tokens") or 0)
    return counted, details.get("cache_write_tokens") or 0


def _format_result(result: ToolResult) -> str | list[dict[str, Any]]:
    if not result.image:
        return result.text
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{result.image}", "detail": "auto"}
    return [{"type": "input_text", "text": result.text}, image]


def _items(message: ConversationMessage) -> Iterator[dict[str, Any]]:
    if message.role == "user":
        for result in message.results:
            yield {"type": "function_call_output", "call_id": result.call, "output": _format_result(result)}
        if message.text:
            yield {"role": "user", "content": message.text}
        return
    if message.verbatim:
        yield from json.loads(message.verbatim)
        return
    # Without ids: the API looks up an item with an id together with its reasoning.
    if message.text.strip() or not message.calls:
        yield {"role": "assistant", "content": message.text if message.text.strip() else NO_TEXT}
    for call in message.calls:
        yield {"type": "function_call", "call_id": call.id, **sendable_function(call)}
