"""Chat completions at an endpoint of the user: streamed with tools, in one piece with a structured answer.

OpenAI itself refuses tools in chat completions for its current models. Servers differ in how they take the schema of
an answer: as ``json_schema`` like OpenAI, or next to the type ``json_object``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.completion_usage import CompletionUsage

from specs.system.vendors.conversation import (
    AnswerForm,
    ConversationMessage,
    ModelReply,
    ModelRequest,
    ReplyStop,
    Stop,
    call_of,
    schema_of,
    sendable_function,
)
from specs.system.vendors.http_exchange import Api, RecordedClient
from specs.system.vendors.prices import TokenUsage
from specs.system.vendors.streams import IncompleteStream
from specs.system.vendors.tool_calls import NO_TEXT, sendable_text

_STOPS: dict[str | None, Stop] = {
    "tool_calls": "tool_use",
    "stop": "end",
    "length": "length",
    "content_filter": "refusal",
}


def body(request: ModelRequest) -> dict[str, Any]:
    """Return the arguments of the SDK's function."""
    messages = (item for message in request.messages for item in _messages(message))
    arguments: dict[str, Any] = {
        "model": request.model,
        "messages": [{"role": "system", "content": request.system}, *messages],
        # Servers ignore fields they do not know, max_completion_tokens among them; this field bounds the cost.
        "max_tokens": request.max_output_tokens,
    }
    if request.form is not None:
        arguments["response_format"] = _response_format(request.form)
    else:
        arguments |= {"stream": True, "stream_options": {"include_usage": True}}
    if request.tools:
        functions = [
            {"name": tool.name, "description": tool.description, "parameters": schema_of(tool)}
            for tool in request.tools
        ]
        arguments["tools"] = [{"type": "function", "function": function} for function in functions]
    if request.reasoning:
        arguments["reasoning_effort"] = request.reasoning
    return arguments


def endpoint(api: Api, http: RecordedClient) -> Callable[..., Any]:
    """Return the SDK's function that sends a request and returns its completion or its stream."""
    return api.openai(http).chat.completions.create


def read(response: ChatCompletion | Iterable[ChatCompletionChunk]) -> ModelReply:
    """Return a completion or the pieces of a stream as one reply; raises IncompleteStream if a stream does not end."""
    return _read_completion(response) if isinstance(response, ChatCompletion) else _read_stream(response)


def _response_format(form: AnswerForm) -> dict[str, Any]:
    if form.as_json_object:
        return {"type": "json_object", "schema": form.schema}
    return {"type": "json_schema", "json_schema": {"name": form.name, "schema": form.schema, "strict": True}}


def _read_completion(completion: ChatCompletion) -> ModelReply:
    usage = _usage(completion.usage)
    if len(completion.choices) != 1:
        return ModelReply(
            completion.model, "", (), "failed", f"expected 1 choice, got {len(completion.choices)}", usage
        )
    choice = completion.choices[0]
    # Joined, because the SDK does not validate: content that is not text raises here.
    text, refusal = "".join([choice.message.content or ""]), choice.message.refusal or ""
    # A request for an answer in one piece offers no tools.
    finish = choice.finish_reason if choice.finish_reason != "tool_calls" else None
    return _reply(completion.model, finish, text, refusal, {}, usage)


def _read_stream(chunks: Iterable[ChatCompletionChunk]) -> ModelReply:
    model, finish, usage = "", None, None
    texts: list[str] = []
    refusals: list[str] = []
    calls: dict[int, dict[str, str]] = {}
    for chunk in chunks:
        model = chunk.model or model
        usage = _usage(chunk.usage) or usage
        for choice in chunk.choices:
            if choice.index != 0:
                raise IncompleteStream(f"expected 1 choice, got a choice {choice.index}")
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
    return _reply(model, finish, sendable_text(texts), sendable_text(refusals), calls, usage)


def _usage(counted: CompletionUsage | None) -> TokenUsage | None:
    if counted is None:
        return None
    details = counted.prompt_tokens_details
    return TokenUsage(counted.prompt_tokens, counted.completion_tokens, (details.cached_tokens if details else 0) or 0)


def _reply(
    model: str,
    finish: str | None,
    text: str,
    refusal: str,
    calls: dict[int, dict[str, str]],
    usage: TokenUsage | None,
) -> ModelReply:
    if refusal:
        return ModelReply(model, text or refusal, (), "refusal", refusal, usage)
    stop: ReplyStop = _STOPS.get(finish, "failed")
    if stop == "end" and calls:
        stop = "tool_use"  # Some servers end an answer with calls like any other.
    tool_calls = tuple(call_of(**calls[index]) for index in sorted(calls) if stop == "tool_use")
    stop = "end" if stop == "tool_use" and not tool_calls else stop
    reason = f"finish reason '{finish}'" if stop == "failed" else str(finish)
    return ModelReply(model, text, tool_calls, stop, reason, usage)


def _messages(message: ConversationMessage) -> Iterator[dict[str, Any]]:
    for result in message.results:
        yield {"role": "tool", "tool_call_id": result.call, "content": result.text}
    if message.role == "user":
        if message.head or message.text:
            yield {"role": "user", "content": message.head + message.text}
        return
    text = message.text if message.text.strip() else None
    if not message.calls:
        yield {"role": "assistant", "content": text or NO_TEXT}
        return
    calls = [{"id": call.id, "type": "function", "function": sendable_function(call)} for call in message.calls]
    yield {"role": "assistant", "content": text, "tool_calls": calls}
