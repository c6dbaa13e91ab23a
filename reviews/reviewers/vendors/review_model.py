"""A model that can be asked: price before, bounded exchanges, everything but a whole answer is an error."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from reviews.gate.reviewer import Earlier, Looking, ModelOutcome, PaidReviewer, ReviewExchange
from reviews.reviewers.vendors.effort_tiers import effort_of
from reviews.reviewers.vendors.looking import Lookups, longest_with_calls
from reviews.reviewers.vendors.model_exchange import ModelQuestion, RejectedAnswer, ToolRound
from reviews.reviewers.vendors.packet_text import reading_list, render
from reviews.reviewers.vendors.refutation import RefutationAnswer, read_refutation, refutation_form, refute_findings
from reviews.reviewers.vendors.verdict_answer import answer_form, instructions, to_verdict
from specs.system.digests import canonical_bytes
from specs.system.errors import NoVerdictCause, ReviewerUnavailable
from specs.system.text import plain
from specs.system.vendors.conversation import AnswerForm, ConversationMessage, ModelReply
from specs.system.vendors.http_exchange import (
    LONGEST_WAIT_S,
    REASON_CHARACTERS,
    Api,
    RecordedClient,
    backoff_s,
    open_api,
)
from specs.system.vendors.model_call import INCOMPLETE, FailedCall, VendorApi, send_request, vendor_api
from specs.system.vendors.parties import Depth, Efforts, ReviewLimits
from specs.system.vendors.parties import ReviewerSpec as ReviewerSpec
from specs.system.vendors.prices import MARGIN_TOKENS, TokenUsage, is_count, is_free, longest_answer, most_tokens
from specs.system.vendors.token_counts import counted_tokens
from specs.system.vendors.tool_calls import NO_TEXT
from specs.trail.verdict import Packet, Verdict

MOST_OUTPUT_TOKENS = 32_000
"""The thinking of a model counts too, so this is far more than an answer needs."""
LEAST_OUTPUT_TOKENS = 1_000
ENOUGH_TOKENS = 8_000
"""Tokens that suffice for an answer, thinking included."""
LEAST_WITH_CALLS = 2_000
"""An answer with calls may be a verdict as well, so less is not worth asking for."""
MOST_BYTES = 16 * 2**20
"""The limit of one stream, which spends some 300 bytes on a token of an answer."""

MOST_REPEATED = 60_000
"""Characters of an answer outside of the form that a model is shown again."""
MOST_COMPLAINT = 3_000
"""Characters of what is wrong with it."""
ONCE_MORE = (
    "That answer cannot be used: {error}. Answer the first message again, whole, with the JSON object of the schema "
    "alone."
)
_LATER = "under reviewer.effort in a new session"
_APIS = {"responses": "openai", "chat": "openai_chat", "chat_json_object": "openai_chat"}
"""The module for each ``Reviewer.api`` of OpenAI's form; Anthropic has one API."""
T = TypeVar("T")


Waits = Callable[[float, str, float], None]
"""Waits so many seconds before a call is repeated; gets the reason, and the USD spent on this review so far."""


def sleeps(seconds: float, why: str, usd: float) -> None:
    """Wait and say nothing."""
    time.sleep(seconds)


class _Before(NamedTuple):
    """What the answers before the last one took."""

    usd: float = 0.0
    usage: TokenUsage = TokenUsage(0, 0)
    written: int = 0
    earlier: tuple[Earlier, ...] = ()

    def and_then(self, reply: ModelReply, usd: float, earlier: Earlier) -> _Before:
        """Return what the answers up to this one took."""
        used = reply.usage or TokenUsage(0, 0)
        usage = TokenUsage(*(sum(pair) for pair in zip(self.usage, used, strict=True)))
        return _Before(self.usd + usd, usage, self.written + reply.written_tokens, (*self.earlier, earlier))


class ReviewModel:
    """One model at one address, with a price."""

    def __init__(self, api: Api, vendor: VendorApi, outage_s: float = 0.0, *, as_json_object: bool = False) -> None:
        """``outage_s``: how long calls are repeated while the API refuses them or is not reached.

        ``as_json_object``: how the schema of an answer is sent, see :class:`AnswerForm`.
        """
        self._vendor = vendor
        self._api = api
        self._as_json_object = as_json_object
        self._outage_s = outage_s
        self._writes = api.vendor == "anthropic"
        """Whether what is cached of a request costs more than the rest."""
        self.model = api.model
        self.price = api.price
        self.name = f"{api.vendor}:{api.model}"

    def cost_cap(self, effort: ReviewLimits) -> float:
        """Return the most USD one question of this effort can cost; 0 when tokens are free."""
        return 0.0 if is_free(self.price) else effort.max_cost_usd

    def ask(
        self,
        instructions: str,
        text: str,
        form: AnswerForm,
        effort: ReviewLimits,
        read: Callable[[str], T],
        waits: Waits = sleeps,
        lookups: Lookups | None = None,
        head: str = "",
        repeats: int = 1,
    ) -> ModelOutcome[T]:
        """Ask, and return what ``read`` makes of the answer or the error, together with what it took.

        ``read`` raises ReviewerUnavailable for an answer it cannot use. After one outside of the form the model is
        asked once more, with the reason, ``repeats`` times at most and as far as the cap pays for it. ``head``
        precedes the text and is the same in every question of a session.
        """
        before = _Before()
        form = form._replace(as_json_object=self._as_json_object)
        with self._api.client(effort.timeout_s, MOST_BYTES) as http:
            until = time.monotonic() + self._outage_s
            reply: ModelReply | None = None
            try:
                requested_question = ModelQuestion(
                    self.model, instructions, text, form, 0, effort.timeout_s, reasoning(effort)
                )
                requested_question = requested_question._replace(head=head, tools=lookups.tools if lookups else ())
                question = self._first(requested_question, effort, lookups)
                while True:
                    if lookups is not None:
                        lookups.sent = len(lookups.looked)
                    reply = self._send(question, http, until, waits, before)
                    if reply.calls and question.tools:
                        following, complaint = self._continue_question(question, reply, effort, lookups, before), ""
                    else:
                        try:
                            return ModelOutcome(
                                self._exchange(http, reply, effort, before, lookups), read(self._whole(reply))
                            )
                        except ReviewerUnavailable as unread:
                            flag = sum(bool(earlier.error) for earlier in before.earlier) < repeats
                            following = self._once_more(question, reply, unread, effort, before) if flag else None
                            if following is None:
                                raise
                            complaint = following.again[-1].complaint
                    earlier = Earlier(http.sent, http.received or b"", complaint)
                    before, reply = before.and_then(reply, self._usd(reply), earlier), None
                    question = following
            except ReviewerUnavailable as error:
                return ModelOutcome(self._exchange(http, reply, effort, before, lookups), error=error)

    def _first(self, requested_question: ModelQuestion, effort: ReviewLimits, lookups: Lookups | None) -> ModelQuestion:
        """Return the request so that its price cannot exceed the cap."""
        at_most = self._most_tokens(requested_question)
        question = self._bound_question(requested_question, at_most, effort.max_cost_usd, effort, lookups)
        enough = min(ENOUGH_TOKENS, effort.max_output_tokens or ENOUGH_TOKENS)
        lacks = (
            question is None or question.max_output_tokens < enough or (lookups is not None and not question.may_call)
        )
        if lacks:
            # Bytes are several times the tokens: where that leaves too little, the vendor counts them.
            countable = question or requested_question._replace(max_output_tokens=1)
            counted = counted_tokens(self._api, self._vendor.body(countable.request()))
            if counted is not None:
                at_most = min(at_most, counted + MARGIN_TOKENS)
                question = self._bound_question(requested_question, at_most, effort.max_cost_usd, effort, lookups)
        if question is None:
            raise ReviewerUnavailable(
                f"max_cost_usd {effort.max_cost_usd:g} does not pay for a request of up to {at_most} tokens "
                f"and an answer of {LEAST_OUTPUT_TOKENS}",
                where=self.name,
                hint=f"raise max_cost_usd {_LATER}",
                cause="cost_cap",
            )
        return question

    def _bound_question(
        self, question: ModelQuestion, at_most: int, usd: float, effort: ReviewLimits, lookups: Lookups | None
    ) -> ModelQuestion | None:
        """Return a request of at most so many tokens with the longest answer that the money pays for.

        Tools may be called while there are rounds left, and money for their answers and a verdict. None if the money
        does not pay for an answer at all.
        """
        most = min(MOST_OUTPUT_TOKENS, effort.max_output_tokens or MOST_OUTPUT_TOKENS)
        may_call = lookups is not None and lookups.rounds > 0 and not question.again
        longest = longest_with_calls(self.price, at_most, usd, most, writes=self._writes) if may_call else 0
        if longest < min(LEAST_WITH_CALLS, most):
            may_call = False
            written = at_most if self._writes else 0
            longest = longest_answer(self.price, at_most, usd, MOST_OUTPUT_TOKENS, written)
            if longest < LEAST_OUTPUT_TOKENS:
                return None
        return question._replace(max_output_tokens=min(longest, most), may_call=may_call)

    def _most_tokens(self, question: ModelQuestion) -> int:
        """Return the most tokens a request can have before any of it was counted."""
        tools = [tool.schema() | {"description": tool.description} for tool in question.tools]
        text = question.instructions + question.head + question.text
        return most_tokens(len(text.encode()) + len(canonical_bytes([question.form.schema, *tools])))

    def _usd(self, reply: ModelReply) -> float:
        return self.price.usd(reply.usage, written_tokens=reply.written_tokens) if reply.usage else 0.0

    def _continue_question(
        self, question: ModelQuestion, reply: ModelReply, effort: ReviewLimits, lookups: Lookups | None, before: _Before
    ) -> ModelQuestion:
        """Carry out the calls of an answer and return the next request; raises ReviewerUnavailable if none can be."""
        if lookups is None or not question.may_call:
            what = "the answer calls tools although nothing more can be looked up"
            raise ReviewerUnavailable(what, where=self.name, cause="out_of_schema")
        if not _is_counted(reply) or reply.usage is None:
            what = "the answer calls tools and does not say what it took"
            raise ReviewerUnavailable(what, where=self.name, cause="malformed")
        results = lookups.results(reply.calls, self.name)
        remaining = effort.max_cost_usd - before.usd - self._usd(reply)
        added = sum(len(result.text.encode()) for result in results)
        # What was sent and said before is counted; of the rest every byte may be a token.
        at_most = reply.usage.input_tokens + reply.usage.output_tokens + most_tokens(added)
        answer = ConversationMessage("assistant", reply.text, reply.calls, reply.verbatim)
        following = question._replace(rounds=(*question.rounds, ToolRound(answer, results)))
        matching_question = self._bound_question(following, at_most, remaining, effort, lookups)
        if matching_question is None:
            what = f"max_cost_usd {effort.max_cost_usd:g} does not pay for a verdict after what was looked up"
            raise ReviewerUnavailable(what, where=self.name, hint=f"raise max_cost_usd {_LATER}", cause="cost_cap")
        return matching_question

    def _once_more(
        self,
        question: ModelQuestion,
        reply: ModelReply,
        error: ReviewerUnavailable,
        effort: ReviewLimits,
        before: _Before,
    ) -> ModelQuestion | None:
        """Return the question with the answer to it and what is wrong with that; None if it must not be asked."""
        if error.cause != "out_of_schema" or not _is_counted(reply) or reply.usage is None:
            return None
        text = reply.text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").strip() or NO_TEXT
        if len(text) > MOST_REPEATED:
            text = f"{text[:MOST_REPEATED]} [cut: {len(text)} characters]"
        message = plain(f"{error.what}: {error.detail}" if error.detail else error.what, MOST_COMPLAINT)
        again = RejectedAnswer(text, ONCE_MORE.format(error=message))
        remaining = effort.max_cost_usd - before.usd - self._usd(reply)
        every = (*question.again, again)
        at_most = most_tokens(sum(len((again.answer + again.complaint).encode()) for again in every))
        at_most += reply.usage.input_tokens if question.rounds else self._most_tokens(question)
        matching_question = self._bound_question(question._replace(again=every), at_most, remaining, effort, None)
        return matching_question and matching_question._replace(
            max_output_tokens=min(matching_question.max_output_tokens, question.max_output_tokens)
        )

    def _whole(self, reply: ModelReply) -> str:
        """Return the text of a reply; raises ReviewerUnavailable if it cannot be a whole answer."""
        cause: NoVerdictCause = "incomplete"
        if reply.stop == "refusal":
            what, cause = "the model refused", "refused"
            if reply.reason != "refusal":
                what = f"{what}: {reply.reason}"
        elif reply.stop == "length":
            what = f"the answer is incomplete ({reply.reason})"
        elif reply.stop != "end":
            what, cause = f"{INCOMPLETE}: {reply.reason}", "server_error" if reply.is_fault else "incomplete"
        else:
            return reply.text
        raise ReviewerUnavailable(plain(what, REASON_CHARACTERS), where=self.name, cause=cause)

    def _send(
        self, question: ModelQuestion, http: RecordedClient, until: float, waits: Waits, before: _Before
    ) -> ModelReply:
        """Send a question until it is answered; raises ReviewerUnavailable if that cannot help, or takes too long."""
        repeats = 0
        while True:
            http.allow(question.timeout_s)
            try:
                return send_request(self._vendor, self._api, http, question.request())
            except FailedCall as failure:
                wait = backoff_s(repeats, failure.wait_s, LONGEST_WAIT_S)
                if failure.refused_for_now and time.monotonic() + wait <= until:
                    repeats += 1
                    waits(wait, failure.what, before.usd)
                    continue
                refused = question.reasoning is not None and http.statuses[-1:] == [400]
                hint = f"if it refuses to be asked for reasoning: reasoning: not_sent {_LATER}" if refused else ""
                raise ReviewerUnavailable(
                    failure.what, where=self.name, hint=hint, cause=failure.cause, detail=failure.detail
                ) from failure

    def _exchange(
        self,
        http: RecordedClient,
        reply: ModelReply | None,
        effort: ReviewLimits,
        before: _Before,
        lookups: Lookups | None,
    ) -> ReviewExchange:
        counted = reply is not None and _is_counted(reply)
        usage = reply.usage if reply and counted else None
        measured = usage is not None or not http.may_be_billed
        usd = before.usd + (self._usd(reply) if reply and usage else 0.0) if measured else self.cost_cap(effort)
        if usage is None and measured and before.earlier:
            usage = TokenUsage(0, 0)
        total = TokenUsage(*(sum(pair) for pair in zip(usage, before.usage, strict=True))) if usage else None
        written = before.written + (reply.written_tokens if reply and counted else 0)
        return ReviewExchange(
            request=http.sent,
            response=http.received,
            statuses=tuple(http.statuses),
            model=plain(str(reply.model), 200) if reply else None,
            usage=total._asdict() | ({"written_tokens": written} if written else {}) if total else None,
            usd=round(usd, 6),
            usd_is_measured=measured,
            seconds=round(time.monotonic() - http.started, 3),
            reasoning=reasoning(effort),
            earlier=before.earlier,
            looked=tuple(lookups.looked[: lookups.sent]) if lookups else (),
        )


def _is_counted(reply: ModelReply) -> bool:
    """Return whether what an answer took can be priced."""
    return is_count(reply.usage) and is_count(TokenUsage(reply.written_tokens, 0))


def reasoning(effort: ReviewLimits) -> Depth | None:
    """Return the reasoning effort that is sent; None when none is."""
    return None if effort.reasoning == "not_sent" else effort.reasoning


def make_model(spec: ReviewerSpec, environ: Mapping[str, str] = os.environ) -> ReviewModel:
    """Build the model a reviewer of a spec names; raises UserError without its key, its SDK or its price."""
    api = open_api("reviewer", spec, environ)
    vendor = vendor_api(_APIS[spec.api] if spec.vendor == "openai" else spec.vendor)
    return ReviewModel(api, vendor, spec.outage_s, as_json_object=spec.api == "chat_json_object")


class ModelReviewer(PaidReviewer):
    """Asks a model about a packet."""

    def __init__(
        self, model: ReviewModel, efforts: Efforts, waits: Waits = sleeps, looks: int = 0, refutes: bool = False
    ) -> None:
        """``looks``: in how many answers the model may look into the evidence; ``refutes``: see :mod:`refutation`."""
        self.waits = waits
        self.model = model
        self.efforts = efforts
        self.looks = looks
        self.refutes = refutes
        self.name = model.name

    def cost_cap(self, packet: Packet) -> float:
        """Return the most USD a review of this packet can cost; 0 when tokens are free."""
        return self.model.cost_cap(effort_of(packet, self.efforts))

    def ask(self, packet: Packet, packet_digest: str, looking: Looking | None = None) -> ModelOutcome[Verdict]:
        """Ask, and return verdict or error together with what it took."""
        lookups = Lookups(looking, self.looks) if looking is not None and looking.names and self.looks else None
        effort = effort_of(packet, self.efforts)
        review = self.model.ask(
            instructions(),
            render(packet, lookups.describe() if lookups else ""),
            answer_form(),
            effort,
            lambda text: to_verdict(text, self.name, packet_digest, lookups.looked if lookups else ()),
            self.waits,
            lookups,
            reading_list(packet),
        )
        if review.value is None or not self.refutes:
            return review

        def refute(prompt: str, text: str, usd: float) -> ModelOutcome[RefutationAnswer]:
            limits = effort.model_copy(update={"max_cost_usd": usd}) if self.cost_cap(packet) else effort
            return self.model.ask(
                prompt, text, refutation_form(), limits, lambda text: read_refutation(text, self.name), self.waits
            )

        return refute_findings(review.value, packet, review.exchange, self.cost_cap(packet), refute)


def model_reviewer(spec: ReviewerSpec, environ: Mapping[str, str] = os.environ, waits: Waits = sleeps) -> ModelReviewer:
    """Build the reviewer a spec names; errors as in :func:`make_model`."""
    return ModelReviewer(make_model(spec, environ), spec.effort, waits, spec.looks or 0, spec.refutation)
