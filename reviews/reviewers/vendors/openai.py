"""Asks a model through OpenAI's Responses API, or through chat completions at an endpoint that has only those.

Servers of chat completions differ in the form of an answer's schema: ``send_chat`` sends ``json_schema`` like OpenAI,
``send_json_object`` puts it next to the type ``json_object``, the only form that llama-cpp-python's server reads.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, cast

from openai import omit
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam
from openai.types.chat.completion_create_params import ResponseFormat
from openai.types.responses import (
    EasyInputMessageParam,
    FunctionToolParam,
    Response,
    ResponseInputParam,
    ResponseOutputItem,
)

from reviews.reviewers.vendors.model_exchange import ModelQuestion, ModelReply, ModelToolCall
from specs.system.vendors.http_exchange import Api, RecordedClient
from specs.system.vendors.prices import TokenUsage
from specs.system.vendors.streams import openai_response
from specs.system.vendors.tool_calls import NO_REASONING, openai_content, sendable_text
from specs.trail.tool_arguments import Tool


def body(question: ModelQuestion) -> dict[str, Any]:
    """Return the request."""
    form = question.form
    arguments: dict[str, Any] = {
        "model": question.model,
        "instructions": question.instructions,
        "input": _input(question),
        "max_output_tokens": question.max_output_tokens,
        "store": False,
        "text": {"format": {"type": "json_schema", "name": form.name, "schema": form.schema, "strict": True}},
    }
    if question.reasoning:
        arguments["reasoning"] = {"effort": question.reasoning}
    if question.tools:
        arguments["tools"] = [_tool(tool) for tool in question.tools]
        arguments["tool_choice"] = "auto" if question.may_call else "none"
        if not NO_REASONING.match(question.model):
            # Calls go back with the reasoning that led to them, which is not stored there.
            arguments["include"] = ["reasoning.encrypted_content"]
    return arguments


def send(question: ModelQuestion, api: Api, http: RecordedClient) -> ModelReply:
    """Send one request, once.

    Raises:
        OpenAIError: the API refused, was not reached or timed out.
        NotWhole: the stream ended before the response.
    """
    events = api.openai(http).responses.create(**body(question), stream=True, timeout=question.timeout_s)
    response, items = openai_response(events)
    return read(response, items if question.tools else ())


def _input(question: ModelQuestion) -> str | ResponseInputParam:
    """Return the conversation. A question alone is sent as a text: some servers of this API take no list."""
    turns = question.turns()
    if not question.again and not question.rounds:
        return turns[0][1]
    results: list[Any] = [_message(*turns[0])]
    for value in question.rounds:
        results += json.loads(value.vendor_json)
        results += [
            {"type": "function_call_output", "call_id": each.call, "output": each.text} for each in value.results
        ]
    return [*results, *(_message(*turn) for turn in turns[1:])]


def _tool(tool: Tool) -> FunctionToolParam:
    # `strict` is true by default, and refuses schemas with optional fields. Calls check their arguments.
    facts = {"type": "function", "name": tool.name, "description": tool.description}
    return cast(FunctionToolParam, facts | {"parameters": tool.schema(), "strict": False})


def _message(role: Literal["user", "assistant"], text: str) -> EasyInputMessageParam:
    return {"role": role, "content": text}


def read(response: Response, items: Sequence[ResponseOutputItem] = ()) -> ModelReply:
    """Take model, usage and text out of a response, and calls out of its finished items; say when it is not whole."""
    usage, written = None, 0
    if (used := response.usage) is not None:
        cached = used.input_tokens_details.cached_tokens if used.input_tokens_details else 0
        usage = TokenUsage(used.input_tokens, used.output_tokens, cached or 0)
        # The SDK leaves out details that a server did not send.
        written = (vars(used.input_tokens_details) if used.input_tokens_details else {}).get("cache_write_tokens") or 0
    messages = [item for item in response.output if item.type == "message" and item.phase != "commentary"]
    parts = [part for item in messages for part in item.content]
    texts = [part.text for part in parts if part.type == "output_text"]
    refusals = [part.refusal for part in parts if part.type != "output_text"]
    unusable, cause = "", "incomplete"
    if response.error is not None:
        unusable, cause = f"the API reports {response.error.code}: {response.error.message}", "server_error"
    elif response.incomplete_details is not None or response.status == "incomplete":
        reason = response.incomplete_details.reason if response.incomplete_details else "no reason given"
        unusable = f"the answer is incomplete ({reason})"
    elif response.status != "completed":
        unusable = f"the answer has the status '{response.status}'"
    elif refusals:
        unusable, cause = f"the model refused: {refusals[0]}", "refused"
    else:
        called = [item for item in items if item.type == "function_call"]
        calls = tuple(
            ModelToolCall(tool_call.call_id, sendable_text([tool_call.name]), sendable_text([tool_call.arguments]))
            for tool_call in called
        )
        if calls:
            text = openai_content(items)
            return ModelReply(
                response.model, usage, "".join(texts), written_tokens=written, calls=calls, vendor_json=text
            )
    return ModelReply(response.model, usage, "".join(texts), unusable, cause, written)


def send_chat(question: ModelQuestion, api: Api, http: RecordedClient, *, as_object: bool = False) -> ModelReply:
    """Send one request, once, with its schema in one of the two forms; errors as in :func:`send`."""
    strict = {"name": question.form.name, "schema": question.form.schema, "strict": True}
    form = {"type": "json_schema", "json_schema": strict}
    if as_object:
        form = {"type": "json_object", "schema": question.form.schema}
    completion = api.openai(http).chat.completions.create(
        model=question.model,
        messages=[
            {"role": "system", "content": question.instructions},
            *(cast(ChatCompletionMessageParam, {"role": role, "content": text}) for role, text in question.turns()),
        ],
        # Not max_completion_tokens: a server that does not know a field passes over it, and this one bounds the cost.
        max_tokens=question.max_output_tokens,
        response_format=cast(ResponseFormat, form),
        reasoning_effort=question.reasoning or omit,
        timeout=question.timeout_s,
    )
    return read_chat(completion)


send_json_object = partial(send_chat, as_object=True)


def read_chat(completion: ChatCompletion) -> ModelReply:
    """Take model, usage and text out of a completion, and say when the text cannot be whole."""
    usage = None
    if (used := completion.usage) is not None:
        cached = used.prompt_tokens_details.cached_tokens if used.prompt_tokens_details else 0
        usage = TokenUsage(used.prompt_tokens, used.completion_tokens, cached or 0)
    if len(completion.choices) != 1:
        return ModelReply(
            completion.model, usage, "", f"the answer has {len(completion.choices)} choices instead of one"
        )
    choice = completion.choices[0]
    # Joined, because the SDK does not validate: content that is not text raises here.
    text, refusal = "".join([choice.message.content or ""]), choice.message.refusal
    unusable = ""
    if refusal:
        unusable = f"the model refused: {refusal}"
    elif choice.finish_reason in ("length", "content_filter"):
        unusable = f"the answer is incomplete ({choice.finish_reason})"
    elif choice.finish_reason != "stop":
        unusable = f"the answer ended with '{choice.finish_reason}'"
    return ModelReply(completion.model, usage, text, unusable, "refused" if refusal else "incomplete")
