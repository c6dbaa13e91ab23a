"""Asks a model for a turn through OpenAI's Responses API: streamed, with tools, and with nothing stored there.

OpenAI keeps no conversation (``store`` is false), so every item of an answer with calls goes back as it came: a call
without the reasoning that led to it is refused, and so is reasoning without its call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import cast

from openai.types.responses import (
    FunctionToolParam,
    Response,
    ResponseInputItemParam,
    ResponseOutputItem,
    ResponseStreamEvent,
)
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

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

_INCOMPLETE: dict[str | None, Stop] = {"max_output_tokens": "length", "content_filter": "refusal"}
_PASSES = ("server_error", "rate_limit_exceeded")
"""Codes of a failed response that may not come again; the others are about what was asked."""
_NO_REASONING = re.compile(r"(ft:)?(gpt-3|gpt-4|chatgpt-|gpt-[\d.]+-chat|gpt-chat)")
"""Models without reasoning: they refuse to be asked for it in encrypted form."""


def body(asking: Asking) -> ResponseCreateParamsStreaming:
    """Return the request. The same asking gives the same bytes, and a longer conversation begins with the same ones."""
    tools: list[FunctionToolParam] = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": schema_of(tool),
            # Left out, it is true here, and schemas with optional or free fields are refused. Arguments are checked
            # when a call is carried out.
            "strict": False,
        }
        for tool in asking.tools
    ]
    items: list[ResponseInputItemParam] = []
    for message in asking.messages:
        items += _items(message)
    given: ResponseCreateParamsStreaming = {
        "model": asking.model,
        "instructions": asking.system,
        "input": items,
        "tools": tools,
        "max_output_tokens": asking.max_output_tokens,
        "store": False,
        "stream": True,
    }
    if not _NO_REASONING.match(asking.model):
        given["include"] = ["reasoning.encrypted_content"]
    if asking.reasoning:
        given["reasoning"] = {"effort": asking.reasoning}
    return given


def send(asking: Asking, api: Api, http: RecordedClient) -> Reply:
    """Send one request; nothing is repeated here.

    Raises:
        OpenAIError: the API refused, was not reached, timed out or reported an error in the stream.
        NotWhole: the stream ended without a whole response.
    """
    with api.openai(http).responses.create(**body(asking), timeout=asking.timeout_s) as stream:
        return read(stream)


def read(events: Iterable[ResponseStreamEvent]) -> Reply:
    """Put the items of a stream together. Each counts when the API says that it is done; pieces are passed over.

    Raises:
        NotWhole: the stream ended before the response did, or with a response that is no answer.
    """
    items: dict[int, ResponseOutputItem] = {}
    for event in events:
        if event.type == "response.output_item.done":
            items[event.output_index] = event.item
        elif event.type == "error":
            raise NotWhole(f"the stream reports {event.code}: {event.message}", passes=event.code in (None, *_PASSES))
        elif event.type == "response.failed":
            failed = event.response.error
            said = f"{failed.code}: {failed.message}" if failed else "no reason"
            raise NotWhole(f"the response failed: {said}", passes=failed is None or failed.code in _PASSES)
        elif event.type == "response.completed" or event.type == "response.incomplete":
            return _reply(event.response, [items[index] for index in sorted(items)])
    raise NotWhole("the stream ended before the response did")


def _reply(response: Response, items: list[ResponseOutputItem]) -> Reply:
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
            name, arguments = sendable_text([item.name]), sendable_text([item.arguments])
            calls.append(ToolCall(id=item.call_id, name=name, arguments=arguments))
    text, refusal = sendable_text(texts), sendable_text(refusals)
    usage, written = _usage(response)
    if refusals:
        return Reply(response.model, text or refusal, (), "refusal", usage, written)
    if stop != "end":
        return Reply(response.model, text, (), stop, usage, written)
    stop = "tool_use" if calls else "end"
    return Reply(response.model, text, tuple(calls), stop, usage, written, _verbatim(items))


def _stop(response: Response) -> Stop:
    """Return why a response ended.

    Raises:
        NotWhole: it is neither complete nor incomplete in a way that can be reported to the model.
    """
    if response.status == "completed":
        return "end"
    reason = response.incomplete_details.reason if response.incomplete_details else None
    if response.status != "incomplete" or reason not in _INCOMPLETE:
        raise NotWhole(f"the stream ended with status '{response.status}', reason '{reason}'")
    return _INCOMPLETE[reason]


def _usage(response: Response) -> tuple[Usage | None, int]:
    """Return what was counted, and how much of the input was written into the prompt cache."""
    if response.usage is None:
        return None, 0
    # Older servers do not know all details, and the SDK leaves out what it was not sent.
    details = vars(response.usage.input_tokens_details) if response.usage.input_tokens_details else {}
    counted = Usage(response.usage.input_tokens, response.usage.output_tokens, details.get("cached_tokens") or 0)
    return counted, details.get("cache_write_tokens") or 0


def _verbatim(items: list[ResponseOutputItem]) -> str:
    """Return the items as they have to go back, reasoning in its place; a field without a value is refused there."""
    given = [item.to_dict(mode="json", exclude_none=True) for item in items]
    while given and given[-1]["type"] == "reasoning":
        # Nothing followed it, and it would be refused without what follows it.
        given.pop()
    for one in given:
        if one["type"] == "function_call":
            one["name"] = sendable_name(str(one["name"]))
            one["arguments"] = sendable_arguments(str(one["arguments"]))
    return sendable_text([json.dumps(given, ensure_ascii=False)]) if given else ""


def _items(message: Message) -> Iterator[ResponseInputItemParam]:
    if message.role == "assistant":
        yield from _assistant(message)
        return
    for result in message.results:
        yield {"type": "function_call_output", "call_id": result.call, "output": result.text}
    if message.text:
        yield {"role": "user", "content": message.text}


def _assistant(message: Message) -> Iterator[ResponseInputItemParam]:
    if message.verbatim:
        yield from cast(list[ResponseInputItemParam], json.loads(message.verbatim))
        return
    # Without ids: what carries one is looked up together with its reasoning.
    if message.text.strip() or not message.calls:
        yield {"role": "assistant", "content": message.text if message.text.strip() else NO_TEXT}
    for call in message.calls:
        yield {
            "type": "function_call",
            "call_id": call.id,
            "name": sendable_name(call.name),
            "arguments": sendable_arguments(call.arguments),
        }
