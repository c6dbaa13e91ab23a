"""A model that can be asked: price before, bounded exchanges, everything but a whole answer is an error."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

import httpx2

from reviews.gate.reviewer import Answered, Earlier, Exchange, PaidReviewer
from reviews.reviewers.vendors.effort_tiers import effort_of
from reviews.reviewers.vendors.model_exchange import Again, Form, Question, Reply
from reviews.reviewers.vendors.packet_text import render
from reviews.reviewers.vendors.verdict_answer import answer_form, instructions, to_verdict
from specs.digests import canonical_bytes
from specs.errors import NoVerdictCause, ReviewerUnavailable
from specs.text import plain
from specs.trail.verdict import Packet, Verdict
from specs.vendors.http_exchange import (
    LONGEST_WAIT_S,
    NOT_THE_API,
    REASON_CHARACTERS,
    UNREADABLE,
    Api,
    RecordedClient,
    backoff_s,
    open_api,
)
from specs.vendors.parties import Depth, Effort, Efforts
from specs.vendors.parties import Reviewer as ReviewerSpec
from specs.vendors.prices import Usage, is_count, is_free, longest_answer, most_tokens
from specs.vendors.streams import NotWhole

MOST_OUTPUT_TOKENS = 32_000
"""The thinking of a model counts too, so this is far more than an answer needs."""
LEAST_OUTPUT_TOKENS = 1_000
MOST_BYTES = 16 * 2**20
"""Of one stream, which spends some 300 bytes on a token of an answer."""

MOST_REPEATED = 60_000
"""Characters of an answer outside of the form that a model is shown again."""
NO_TEXT = "(no text)"
"""Replaces an empty answer: no vendor takes one back."""
ONCE_MORE = (
    "That answer cannot be used: {error}. Answer the first message again, whole, with the JSON object of the schema "
    "alone."
)
_CUT_OFF = "the answer of the reviewer's server was cut off"
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


Waits = Callable[[float, str, float], None]
"""Waits so many seconds before a call is repeated; gets the reason, and the USD spent on this review so far."""


def sleeps(seconds: float, why: str, usd: float) -> None:
    """Wait and say nothing."""
    time.sleep(seconds)


class _Before(NamedTuple):
    """What an answer took after which the model was asked once more."""

    usd: float = 0.0
    usage: Usage = Usage(0, 0)
    earlier: tuple[Earlier, ...] = ()


class Model:
    """One model at one address, with a price."""

    def __init__(self, api: Api, send: Send, outage_s: float = 0.0) -> None:
        """``outage_s``: how long calls are repeated while the API refuses them or is not reached."""
        self._api = api
        self._send_once = send
        self._outage_s = outage_s
        self.model = api.model
        self.price = api.price
        self.name = f"{api.vendor}:{api.model}"

    def cost_cap(self, effort: Effort) -> float:
        """Return the most USD one question of this effort can cost; 0 when tokens are free."""
        return 0.0 if is_free(self.price) else effort.max_cost_usd

    def ask(
        self,
        instructions: str,
        text: str,
        form: Form,
        effort: Effort,
        read: Callable[[str], T],
        waits: Waits = sleeps,
    ) -> Answered[T]:
        """Ask, and return what ``read`` makes of the answer or the error, together with what it took.

        ``read`` raises ReviewerUnavailable for an answer it cannot use. After one outside of the form the model is
        asked once more, with the reason, if the cap pays for that too.
        """
        before = _Before()
        with self._api.client(effort.timeout_s, MOST_BYTES) as http:
            until = time.monotonic() + self._outage_s
            reply: Reply | None = None
            try:
                question = self._question(instructions, text, form, effort)
                reply = self._send(question, http, until, waits, before)
                try:
                    value = read(self._whole(reply))
                except ReviewerUnavailable as unread:
                    again = self._once_more(question, reply, unread, effort)
                    if again is None or again.again is None:
                        raise
                    kept = Earlier(http.sent, http.received or b"", again.again.complaint)
                    usage = reply.usage or Usage(0, 0)
                    before, reply = _Before(self.price.usd(usage), usage, (kept,)), None
                    reply = self._send(again, http, until, waits, before)
                    value = read(self._whole(reply))
            except ReviewerUnavailable as error:
                return Answered(self._exchange(http, reply, effort, before), error=error)
            return Answered(self._exchange(http, reply, effort, before), value=value)

    def _question(self, instructions: str, text: str, form: Form, effort: Effort) -> Question:
        """Write the request so that its price cannot exceed the cap."""
        longest, at_most = self._longest(effort, effort.max_cost_usd, instructions, text, form)
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

    def _longest(self, effort: Effort, usd: float, instructions: str, text: str, form: Form) -> tuple[int, int]:
        """Return the longest answer that so much money pays for, and the most tokens of its request."""
        at_most = most_tokens(len(instructions.encode()) + len(text.encode()) + len(canonical_bytes(form.schema)))
        return longest_answer(self.price, at_most, usd, MOST_OUTPUT_TOKENS), at_most

    def _once_more(
        self, question: Question, reply: Reply, error: ReviewerUnavailable, effort: Effort
    ) -> Question | None:
        """Return the question with the answer to it and what is wrong with that; None if it must not be asked."""
        if error.cause != "out_of_schema" or reply.usage is None or not is_count(reply.usage):
            return None
        said = reply.text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").strip() or NO_TEXT
        if len(said) > MOST_REPEATED:
            said = f"{said[:MOST_REPEATED]} [cut: {len(said)} characters]"
        told = plain(f"{error.what}: {error.detail}" if error.detail else error.what, REASON_CHARACTERS)
        again = Again(said, ONCE_MORE.format(error=told))
        left = effort.max_cost_usd - self.price.usd(reply.usage)
        text = question.text + again.answer + again.complaint
        longest, _ = self._longest(effort, left, question.instructions, text, question.form)
        if longest < LEAST_OUTPUT_TOKENS:
            return None
        return question._replace(again=again, max_output_tokens=min(longest, question.max_output_tokens))

    def _whole(self, reply: Reply) -> str:
        """Return the text of a reply; raises ReviewerUnavailable if it cannot be a whole answer."""
        if reply.unusable:
            told = plain(reply.unusable, REASON_CHARACTERS)
            raise ReviewerUnavailable(told, where=self.name, cause=reply.cause)
        return reply.text

    def _send(self, question: Question, http: RecordedClient, until: float, waits: Waits, before: _Before) -> Reply:
        """Send a question until it is answered; raises ReviewerUnavailable if that cannot help, or takes too long."""
        repeats = 0
        while True:
            http.allow(question.timeout_s)
            try:
                return self._send_once(question, self._api, http)
            except self._api.errors as error:
                what, cause = unanswered(http, error)
                wait = backoff_s(repeats, http.told_to_wait_s, LONGEST_WAIT_S)
                if http.refused_for_now and time.monotonic() + wait <= until:
                    repeats += 1
                    waits(wait, what, before.usd)
                    continue
                refused = question.reasoning is not None and http.statuses[-1:] == [400]
                hint = f"if it refuses to be asked for reasoning: reasoning: not_sent {_LATER}" if refused else ""
                said = plain(http.without_secrets(f"{type(error).__name__}: {error}"), REASON_CHARACTERS)
                raise ReviewerUnavailable(what, where=self.name, hint=hint, cause=cause, detail=said) from error
            except NotWhole as error:
                if b"data:" not in (http.received or b""):
                    # A page, or a body in one piece: nothing was cut off.
                    raise ReviewerUnavailable(NOT_THE_API, where=self.name, cause="malformed") from error
                said = plain(http.without_secrets(str(error)), REASON_CHARACTERS)
                raise ReviewerUnavailable(_CUT_OFF, where=self.name, cause="cut_off", detail=said) from error
            except (*UNREADABLE, KeyError) as error:
                told = f"{NOT_THE_API} ({type(error).__name__})"
                raise ReviewerUnavailable(told, where=self.name, cause="malformed") from error

    def _exchange(self, http: RecordedClient, reply: Reply | None, effort: Effort, before: _Before) -> Exchange:
        usage = reply.usage if reply and is_count(reply.usage) else None
        measured = usage is not None or not http.may_be_billed
        usd = before.usd + (self.price.usd(usage) if usage else 0.0) if measured else self.cost_cap(effort)
        if usage is None and measured and before.earlier:
            usage = Usage(0, 0)
        total = Usage(*(sum(pair) for pair in zip(usage, before.usage, strict=True))) if usage else None
        return Exchange(
            request=http.sent,
            response=http.received,
            statuses=tuple(http.statuses),
            model=plain(str(reply.model), 200) if reply else None,
            usage=dict(total._asdict()) if total else None,
            usd=round(usd, 6),
            usd_is_measured=measured,
            seconds=round(time.monotonic() - http.started, 3),
            reasoning=reasoning(effort),
            earlier=before.earlier,
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
        return f"{_CUT_OFF}{after}", "cut_off"
    if status < 300:
        # An error in the middle of a stream comes under the status of its beginning.
        return (_CUT_OFF, "cut_off") if b"data:" in (http.received or b"") else (NOT_THE_API, "malformed")
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
    return Model(api, getattr(module, sender), spec.outage_s)


class ModelReviewer(PaidReviewer):
    """Asks a model about a packet."""

    def __init__(self, model: Model, efforts: Efforts, waits: Waits = sleeps) -> None:
        self.waits = waits
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
            self.waits,
        )


def model_reviewer(spec: ReviewerSpec, environ: Mapping[str, str] = os.environ, waits: Waits = sleeps) -> ModelReviewer:
    """Build the reviewer a spec names; errors as in :func:`make_model`."""
    return ModelReviewer(make_model(spec, environ), spec.effort, waits)
