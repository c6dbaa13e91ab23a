"""Asks a model through Anthropic's Messages API, streamed, with structured output."""

from __future__ import annotations

from typing import Literal, cast

from anthropic import omit
from anthropic.types import MessageParam, OutputConfigParam

from reviews.reviewers.vendors.model_exchange import Question, Reply
from specs.vendors.http_exchange import Api, RecordedClient
from specs.vendors.prices import Usage
from specs.vendors.streams import StreamedMessage, anthropic_message


def send(question: Question, api: Api, http: RecordedClient) -> Reply:
    """Send one request, once.

    Raises:
        AnthropicError: the API refused, was not reached or timed out.
        NotWhole: the stream ended before the message.
    """
    output: OutputConfigParam = {"format": {"type": "json_schema", "schema": question.form.schema}}
    if question.reasoning:
        # Effort alone shapes the text; together with adaptive thinking it says how much is thought before it. The
        # schema binds the text only, so the two go together.
        # The rules of the spec refuse what Anthropic does not have.
        output["effort"] = cast(Literal["low", "medium", "high", "xhigh", "max"], question.reasoning)
    said = [_message(*one) for one in question.turns()]
    events = api.anthropic(http).messages.create(
        model=question.model,
        system=question.instructions,
        messages=said,
        max_tokens=question.max_output_tokens,
        output_config=output,
        thinking={"type": "adaptive"} if question.reasoning else omit,
        stream=True,
        timeout=question.timeout_s,
    )
    return read(anthropic_message(events))


def _message(role: Literal["user", "assistant"], text: str) -> MessageParam:
    return {"role": "user", "content": text} if role == "user" else {"role": "assistant", "content": text}


def read(message: StreamedMessage) -> Reply:
    """Take model, usage and text out of a message, and say when the text cannot be whole."""
    counted = message.counts
    usage = None
    asked, answered = counted.get("input_tokens"), counted.get("output_tokens")
    if asked is not None and answered is not None:
        cached = counted.get("cache_read_input_tokens") or 0
        usage = Usage(asked + cached + (counted.get("cache_creation_input_tokens") or 0), answered, cached)
    texts = [one for one in message.blocks if one["type"] == "text"]
    text = "".join(piece for one in texts for piece in (one["text"], *one["pieces"]))
    unusable = "" if message.stop == "end_turn" else f"the answer ended with '{message.stop}'"
    if message.stop == "refusal":
        unusable = "the model refused"
    elif message.stop == "max_tokens":
        unusable = "the answer is incomplete (max_tokens)"
    cause = "refused" if message.stop == "refusal" else "incomplete"
    return Reply(message.model, usage, text, unusable, cause)
