"""Asks a model through Anthropic's Messages API, with structured output."""

from __future__ import annotations

from typing import Literal, cast

from anthropic import omit
from anthropic.types import Message, OutputConfigParam

from reviews.reviewers.vendors.model_exchange import Question, Reply
from specs.vendors.http_exchange import Api, RecordedClient
from specs.vendors.prices import Usage


def send(question: Question, api: Api, http: RecordedClient) -> Reply:
    """Send one request, once; raises AnthropicError if the API refused, was not reached or timed out."""
    output: OutputConfigParam = {"format": {"type": "json_schema", "schema": question.form.schema}}
    if question.reasoning:
        # Effort alone shapes the text; together with adaptive thinking it says how much is thought before it. The
        # schema binds the text only, so the two go together.
        # The rules of the spec refuse what Anthropic does not have.
        output["effort"] = cast(Literal["low", "medium", "high", "xhigh", "max"], question.reasoning)
    message = api.anthropic(http).messages.create(
        model=question.model,
        system=question.instructions,
        messages=[{"role": "user", "content": question.text}],
        max_tokens=question.max_output_tokens,
        output_config=output,
        thinking={"type": "adaptive"} if question.reasoning else omit,
        timeout=question.timeout_s,
    )
    return read(message)


def read(message: Message) -> Reply:
    """Take model, usage and text out of a message, and say when the text cannot be whole."""
    counted = message.usage
    cached = counted.cache_read_input_tokens or 0
    total = counted.input_tokens + cached + (counted.cache_creation_input_tokens or 0)
    text = "".join(block.text for block in message.content if block.type == "text")
    unusable = "" if message.stop_reason == "end_turn" else f"the answer ended with '{message.stop_reason}'"
    if message.stop_reason == "refusal":
        unusable = "the model refused"
    elif message.stop_reason == "max_tokens":
        unusable = "the answer is incomplete (max_tokens)"
    cause = "refused" if message.stop_reason == "refusal" else "incomplete"
    return Reply(message.model, Usage(total, counted.output_tokens, cached), text, unusable, cause)
