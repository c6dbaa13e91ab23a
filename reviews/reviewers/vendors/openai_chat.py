"""Asks a model through chat completions, at an endpoint that does not speak the Responses API.

Servers differ in how they take the schema of an answer. ``send`` writes it as OpenAI does (``json_schema``);
``send_json_object`` puts it beside the type ``json_object``, which is all that llama-cpp-python's server reads.
"""

from __future__ import annotations

from typing import Any, cast

import httpx2
import openai
from openai.types.chat import ChatCompletion
from openai.types.chat.completion_create_params import ResponseFormat

from reviews.reviewers.vendors.model_exchange import Question, Reply
from reviews.reviewers.vendors.openai import ADDRESS, ERRORS
from specs.vendors.prices import Usage

__all__ = ["ADDRESS", "ERRORS", "read", "send", "send_json_object"]


def send(question: Question, http: httpx2.Client, key: str, address: str) -> Reply:
    """Send one request with the schema as ``json_schema``; nothing is repeated here.

    Raises:
        OpenAIError: the endpoint refused, was not reached or timed out.
    """
    form = {"name": question.form.name, "schema": question.form.schema, "strict": True}
    return _send(question, http, key, address, {"type": "json_schema", "json_schema": form})


def send_json_object(question: Question, http: httpx2.Client, key: str, address: str) -> Reply:
    """Send one request with the schema beside ``json_object``; nothing is repeated here.

    Raises:
        OpenAIError: the endpoint refused, was not reached or timed out.
    """
    return _send(question, http, key, address, {"type": "json_object", "schema": question.form.schema})


def _send(question: Question, http: httpx2.Client, key: str, address: str, form: dict[str, Any]) -> Reply:
    client = openai.OpenAI(api_key=key, base_url=address, max_retries=0, http_client=http)
    completion = client.chat.completions.create(
        model=question.model,
        messages=[
            {"role": "system", "content": question.instructions},
            {"role": "user", "content": question.text},
        ],
        # Not max_completion_tokens: a server that does not know a field passes over it, and this one bounds the cost.
        max_tokens=question.max_output_tokens,
        response_format=cast(ResponseFormat, form),
        reasoning_effort=question.reasoning or openai.omit,
        timeout=question.timeout_s,
    )
    return read(completion)


def read(completion: ChatCompletion) -> Reply:
    """Take model, usage and text out of a completion, and say when the text cannot be whole."""
    usage = None
    if completion.usage is not None:
        details = completion.usage.prompt_tokens_details
        cached = details.cached_tokens if details else 0
        usage = Usage(completion.usage.prompt_tokens, completion.usage.completion_tokens, cached or 0)
    if len(completion.choices) != 1:
        return Reply(completion.model, usage, "", f"the answer has {len(completion.choices)} choices instead of one")
    choice = completion.choices[0]
    # Joined, because the SDK does not validate: content that is no text raises here.
    text, refusal = "".join([choice.message.content or ""]), choice.message.refusal
    unusable = ""
    if refusal:
        unusable = f"the model refused: {refusal}"
    elif choice.finish_reason in ("length", "content_filter"):
        unusable = f"the answer is incomplete ({choice.finish_reason})"
    elif choice.finish_reason != "stop":
        unusable = f"the answer ended with '{choice.finish_reason}'"
    return Reply(completion.model, usage, text, unusable, "refused" if refusal else "incomplete")
