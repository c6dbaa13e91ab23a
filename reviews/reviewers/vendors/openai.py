"""Asks a model through OpenAI's Responses API, at OpenAI or at any endpoint that speaks it."""

from __future__ import annotations

import httpx2
import openai
from openai.types.responses import Response

from reviews.reviewers.vendors.model_exchange import Question, Reply
from specs.vendors.prices import Usage

ADDRESS = "https://api.openai.com/v1"
ERRORS: tuple[type[Exception], ...] = (openai.OpenAIError, httpx2.HTTPError)


def send(question: Question, http: httpx2.Client, key: str, address: str) -> Reply:
    """Send one request; nothing is repeated here.

    Raises:
        OpenAIError: the API refused, was not reached or timed out.
    """
    # The address is given here so that the environment cannot redirect a registered reviewer.
    client = openai.OpenAI(api_key=key, base_url=address, max_retries=0, http_client=http)
    response = client.responses.create(
        model=question.model,
        instructions=question.instructions,
        input=question.text,
        max_output_tokens=question.max_output_tokens,
        store=False,
        reasoning={"effort": question.reasoning} if question.reasoning else openai.omit,
        text={
            "format": {
                "type": "json_schema",
                "name": question.form.name,
                "schema": question.form.schema,
                "strict": True,
            }
        },
        timeout=question.timeout_s,
    )
    return read(response)


def read(response: Response) -> Reply:
    """Take model, usage and text out of a response, and say when the text cannot be whole."""
    usage = None
    if response.usage is not None:
        details = response.usage.input_tokens_details
        cached = details.cached_tokens if details else 0
        usage = Usage(response.usage.input_tokens, response.usage.output_tokens, cached or 0)
    texts: list[str] = []
    refusals: list[str] = []
    for item in response.output:
        if item.type != "message" or item.phase == "commentary":
            continue
        for part in item.content:
            if part.type == "output_text":
                texts.append(part.text)
            else:
                refusals.append(part.refusal)
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
    return Reply(response.model, usage, "".join(texts), unusable, cause)
