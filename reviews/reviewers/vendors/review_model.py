"""A model that can be asked: price before, one bounded exchange, everything but a whole answer is an error."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import httpx2

from reviews.gate.reviewer import Answered, Exchange, PaidReviewer
from reviews.reviewers.vendors.effort_tiers import effort_of
from reviews.reviewers.vendors.model_exchange import Form, Question, Reply
from reviews.reviewers.vendors.verdict_answer import answer_form, instructions, to_verdict
from specs.digests import canonical_bytes
from specs.errors import NoVerdictCause, ReviewerUnavailable
from specs.session.session_spec import Depth, Effort, Efforts
from specs.session.session_spec import Reviewer as ReviewerSpec
from specs.text import plain
from specs.trail.verdict import Packet, Verdict
from specs.vendors.http_exchange import NOT_THE_API, REASON_CHARACTERS, UNREADABLE, Api, RecordedClient, open_api
from specs.vendors.prices import is_count, is_free, longest_answer, most_tokens
from specs.vendors.untrusted_text import enclose

MOST_OUTPUT_TOKENS = 32_000
"""The thinking of a model counts too, so this is far more than an answer needs."""
LEAST_OUTPUT_TOKENS = 1_000

_LATER = "under reviewer.effort in a new session"
_STATUSES: dict[int, tuple[str, NoVerdictCause]] = {
    401: ("key refused", "key_refused"),
    403: ("not allowed", "key_refused"),
    404: ("not found", "request_refused"),
    408: ("timeout", "server_error"),
    409: ("request refused", "server_error"),
    429: ("too many requests", "rate_limited"),
}
Send = Callable[[Question, Api, RecordedClient], Reply]
_SENDERS = {
    "responses": ("openai", "send"),
    "chat": ("openai", "send_chat"),
    "chat_json_object": ("openai", "send_json_object"),
}
"""Module and function for each ``Reviewer.api`` of OpenAI's form; Anthropic has one API."""
T = TypeVar("T")


class Model:
    """One model at one address, with a price."""

    def __init__(self, api: Api, send: Send) -> None:
        self._api = api
        self._send_once = send
        self.model = api.model
        self.price = api.price
        self.name = f"{api.vendor}:{api.model}"

    def cost_cap(self, effort: Effort) -> float:
        """Return the most USD one question of this effort can cost; 0 when tokens are free."""
        return 0.0 if is_free(self.price) else effort.max_cost_usd

    def ask(self, instructions: str, text: str, form: Form, effort: Effort, read: Callable[[str], T]) -> Answered[T]:
        """Ask once, and return what ``read`` makes of the answer or the error, together with what it took.

        ``read`` raises ReviewerUnavailable for an answer it cannot use.
        """
        with self._api.client(effort.timeout_s) as http:
            reply: Reply | None = None
            try:
                question = self._question(instructions, text, form, effort)
                reply = self._send(question, http)
                if reply.unusable:
                    told = plain(reply.unusable, REASON_CHARACTERS)
                    raise ReviewerUnavailable(told, where=self.name, cause=reply.cause)
                value = read(reply.text)
            except ReviewerUnavailable as error:
                return Answered(self._exchange(http, reply, effort), error=error)
            return Answered(self._exchange(http, reply, effort), value=value)

    def _question(self, instructions: str, text: str, form: Form, effort: Effort) -> Question:
        """Write the request so that its price cannot exceed the cap."""
        at_most = most_tokens(len(instructions.encode()) + len(text.encode()) + len(canonical_bytes(form.schema)))
        longest = longest_answer(self.price, at_most, effort.max_cost_usd, MOST_OUTPUT_TOKENS)
        if longest < LEAST_OUTPUT_TOKENS:
            raise ReviewerUnavailable(
                f"max_cost_usd {effort.max_cost_usd:g} does not pay for a request of up to {at_most} tokens "
                f"and an answer of {LEAST_OUTPUT_TOKENS}",
                where=self.name,
                hint=f"raise max_cost_usd {_LATER}",
                cause="cost_cap",
            )
        longest = min(longest, effort.max_output_tokens or longest)
        return Question(self.model, instructions, text, form, longest, effort.timeout_s, reasoning(effort))

    def _send(self, question: Question, http: RecordedClient) -> Reply:
        while True:
            try:
                left = question._replace(timeout_s=max(http.remaining_s, 0.001))
                return self._send_once(left, self._api, http)
            except self._api.errors as error:
                wait = http.wait_s()
                if wait is None:
                    refused = question.reasoning is not None and http.statuses[-1:] == [400]
                    hint = f"if it refuses to be asked for reasoning: reasoning: not_sent {_LATER}" if refused else ""
                    what, cause = unanswered(http, error)
                    said = plain(http.without_secrets(f"{type(error).__name__}: {error}"), REASON_CHARACTERS)
                    raise ReviewerUnavailable(what, where=self.name, hint=hint, cause=cause, detail=said) from error
                time.sleep(wait)
            except UNREADABLE as error:
                told = f"{NOT_THE_API} ({type(error).__name__})"
                raise ReviewerUnavailable(told, where=self.name, cause="malformed") from error

    def _exchange(self, http: RecordedClient, reply: Reply | None, effort: Effort) -> Exchange:
        usage = reply.usage if reply and is_count(reply.usage) else None
        measured = usage is not None or not http.may_be_billed
        usd = (self.price.usd(usage) if usage else 0.0) if measured else self.cost_cap(effort)
        return Exchange(
            request=http.sent,
            response=http.received,
            statuses=tuple(http.statuses),
            model=plain(str(reply.model), 200) if reply else None,
            usage=dict(usage._asdict()) if usage else None,
            usd=round(usd, 6),
            usd_is_measured=measured,
            seconds=round(time.monotonic() - http.started, 3),
            reasoning=reasoning(effort),
        )


def unanswered(http: RecordedClient, error: Exception) -> tuple[str, NoVerdictCause]:
    """Say how the last call failed, in words and as a cause."""
    status, count = http.statuses[-1] if http.statuses else None, len(http.statuses)
    after = f" after {count} calls" if count > 1 else ""
    if status is None:
        if not http.was_reached:
            return f"the reviewer's server was not reached{after}", "unreachable"
        if _timed_out(error) or http.remaining_s <= 0:
            return f"the reviewer's server did not answer in time{after}", "timed_out"
        return f"the answer of the reviewer's server was cut off{after}", "cut_off"
    if status < 300:
        return NOT_THE_API, "malformed"
    other = ("request refused", "request_refused") if status < 500 else ("server error", "server_error")
    named, cause = _STATUSES.get(status, other)
    return f"the reviewer's server answered {status} ({named}){after}", cause


def _timed_out(error: BaseException | None) -> bool:
    """Say whether an error, or one that it comes from, is a timeout; the SDKs wrap those of the connection."""
    return error is not None and (isinstance(error, httpx2.TimeoutException) or _timed_out(error.__cause__))


def reasoning(effort: Effort) -> Depth | None:
    """Return the reasoning effort that is sent; None when none is."""
    return None if effort.reasoning == "not_sent" else effort.reasoning


def make_model(spec: ReviewerSpec, environ: Mapping[str, str] = os.environ) -> Model:
    """Build the model a reviewer of a spec names; raises UserError without its key, its SDK or its price."""
    api = open_api("reviewer", spec, environ)
    where, sender = _SENDERS[spec.api] if spec.vendor == "openai" else ("anthropic", "send")
    module = importlib.import_module(f"reviews.reviewers.vendors.{where}")
    return Model(api, getattr(module, sender))


class ModelReviewer(PaidReviewer):
    """Asks a model about a packet."""

    def __init__(self, model: Model, efforts: Efforts) -> None:
        self.model = model
        self.efforts = efforts
        self.name = model.name

    def cost_cap(self, packet: Packet) -> float:
        """Return the most USD a review of this packet can cost; 0 when tokens are free."""
        return self.model.cost_cap(effort_of(packet, self.efforts))

    def ask(self, packet: Packet, packet_digest: str) -> Answered[Verdict]:
        """Ask once, and return verdict or error together with what it took."""
        return self.model.ask(
            instructions(),
            render(packet),
            answer_form(),
            effort_of(packet, self.efforts),
            lambda text: to_verdict(text, self.name, packet_digest),
        )


def render(packet: Packet) -> str:
    """Write the packet as canonical JSON, one line between markers."""
    data = packet.canonical().decode("utf-8")
    return enclose("packet", data) + "Review the packet by your instructions and answer with the JSON object only."


def model_reviewer(spec: ReviewerSpec, environ: Mapping[str, str] = os.environ) -> ModelReviewer:
    """Build the reviewer a spec names; errors as in :func:`make_model`."""
    return ModelReviewer(make_model(spec, environ), spec.effort)
