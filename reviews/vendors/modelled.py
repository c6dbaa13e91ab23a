"""A reviewer that asks a model: price before, one bounded exchange, everything that is no whole answer is an error."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from reviews.packet import DESIGN
from reviews.reviewer import Exchange, Review
from reviews.text import plain
from reviews.vendors.calls import RecordedClient
from reviews.vendors.prices import ListedPrice, Price, StatedPrice, longest_answer, missing_package
from reviews.vendors.wire import Question, Reply, Usage, answer_schema, instructions, render, to_verdict
from specs.digests import canonical_bytes
from specs.errors import ReviewerUnavailable, UserError
from specs.lint_reviewer import DESIGN_STAKES
from specs.session import Effort, Efforts
from specs.session import Reviewer as ReviewerSpec
from specs.verdicts import Packet, Verdict

MOST_OUTPUT_TOKENS = 32_000
"""The thinking of a model counts too, so this is far more than an answer needs."""
LEAST_OUTPUT_TOKENS = 1_000
MARGIN_TOKENS = 1_000
"""What an API may add to a request that we do not see: roles, and how it writes the schema."""
REASON_CHARACTERS = 500
KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
ENDPOINT_KEY = "PEERGATE_REVIEWER_KEY"
"""For an endpoint named in a spec: whoever wrote the spec must not be sent the key of a vendor."""

Send = Callable[[Question, RecordedClient, str, str], Reply]


class Api(NamedTuple):
    """How a vendor is reached."""

    vendor: str
    send: Send
    errors: tuple[type[Exception], ...]
    address: str
    key: str

    def __repr__(self) -> str:
        """Leave the key out: this may end up in a traceback."""
        return f"Api({self.vendor!r}, {self.address!r})"


class ModelReviewer:
    """A :class:`reviews.reviewer.PaidReviewer`."""

    def __init__(self, api: Api, model: str, price: Price, efforts: Efforts) -> None:
        self._api = api
        self.model = model
        self.price = price
        self.efforts = efforts
        self.name = f"{api.vendor}:{model}"

    def cost_cap(self, packet: Packet) -> float:
        """Return the most USD a review of this packet can cost; 0 when tokens are free."""
        free = self.price.usd(Usage(1_000_000, 1_000_000)) == 0
        return 0.0 if free else self._effort(packet).max_cost_usd

    def review(self, packet: Packet, packet_digest: str) -> Verdict:
        """Return the model's verdict.

        Raises:
            ReviewerUnavailable: there is no whole, valid, non-empty answer.
        """
        review = self.ask(packet, packet_digest)
        if review.verdict is None:
            raise review.error or ReviewerUnavailable("no verdict", where=self.name)
        return review.verdict

    def ask(self, packet: Packet, packet_digest: str) -> Review:
        """Ask once, and return verdict or error together with what it took."""
        effort = self._effort(packet)
        with RecordedClient(effort.timeout_s, self._api.key) as http:
            reply: Reply | None = None
            try:
                question = self._question(packet, effort)
                reply = self._send(question, http)
                if reply.unusable:
                    raise ReviewerUnavailable(plain(reply.unusable, REASON_CHARACTERS), where=self.name)
                verdict = to_verdict(reply.text, self.name, packet_digest)
            except ReviewerUnavailable as error:
                return Review(self._exchange(http, reply, packet), error=error)
            return Review(self._exchange(http, reply, packet), verdict=verdict)

    def _effort(self, packet: Packet) -> Effort:
        gate = packet.registered.get("gate", {})
        stakes = DESIGN_STAKES if packet.stage == DESIGN else gate.get("stakes", DESIGN_STAKES)
        return getattr(self.efforts, stakes)

    def _question(self, packet: Packet, effort: Effort) -> Question:
        """Write the request so that its price cannot exceed the cap."""
        prompt, text = instructions(), render(packet)
        # No tokenizer makes more tokens than bytes, so this holds for models whose tokenizer nobody knows.
        at_most = len(prompt.encode()) + len(text.encode()) + len(canonical_bytes(answer_schema())) + MARGIN_TOKENS
        longest = longest_answer(self.price, at_most, effort.max_cost_usd, MOST_OUTPUT_TOKENS)
        if longest < LEAST_OUTPUT_TOKENS:
            raise ReviewerUnavailable(
                f"max_cost_usd {effort.max_cost_usd:g} does not pay for a request of up to {at_most} tokens "
                f"and an answer of {LEAST_OUTPUT_TOKENS}",
                where=self.name,
                hint="raise reviewer.effort in a new session",
            )
        return Question(self.model, prompt, text, longest, effort.timeout_s)

    def _send(self, question: Question, http: RecordedClient) -> Reply:
        while True:
            try:
                left = question._replace(timeout_s=max(http.remaining_s, 0.001))
                return self._api.send(left, http, self._api.key, self._api.address)
            except self._api.errors as error:
                wait = http.wait_s()
                if wait is None:
                    raise ReviewerUnavailable(self._why(error, http), where=self.name) from error
                time.sleep(wait)
            except (ValueError, TypeError, AttributeError) as error:
                # The SDKs do not validate what they read: a body in another form surfaces as one of these.
                message = f"the response is not in the form of the API ({type(error).__name__})"
                raise ReviewerUnavailable(message, where=self.name) from error

    def _why(self, error: Exception, http: RecordedClient) -> str:
        calls = len(http.statuses)
        status = http.statuses[-1] if http.statuses else None
        said = plain(http.without_key(str(error)), REASON_CHARACTERS)
        answered = "no whole response" if status is None else f"status {status}"
        return f"{answered} after {calls} {'call' if calls == 1 else 'calls'}: {type(error).__name__}: {said}"

    def _exchange(self, http: RecordedClient, reply: Reply | None, packet: Packet) -> Exchange:
        usage = reply.usage if reply and _is_count(reply.usage) else None
        usd, measured = 0.0, True
        if usage is not None:
            usd = self.price.usd(usage)
        elif http.may_be_billed:
            usd, measured = self.cost_cap(packet), False
        return Exchange(
            request=http.sent,
            response=http.received,
            statuses=tuple(http.statuses),
            model=plain(str(reply.model), 200) if reply else None,
            usage=dict(usage._asdict()) if usage else None,
            usd=round(usd, 6),
            usd_is_measured=measured,
            seconds=round(time.monotonic() - http.started, 3),
        )


def _is_count(usage: Usage | None) -> bool:
    """Say whether a usage can be priced: an endpoint may write anything there."""
    return usage is not None and all(type(count) is int and 0 <= count < 2**40 for count in usage)


def model_reviewer(spec: ReviewerSpec, environ: Mapping[str, str] = os.environ) -> ModelReviewer:
    """Build the reviewer a spec names.

    Raises:
        UserError: the key is not set, the SDK is not installed, or no price is known of the model.
    """
    name = ENDPOINT_KEY if spec.base_url else KEYS[spec.vendor]
    key = environ.get(name, "").strip()
    if not key and not spec.base_url:
        raise UserError(f"{name} is not set", where=f"reviewer vendor '{spec.vendor}'", hint=f"export {name}=...")
    model = spec.model or ""
    stated = spec.usd_per_million_tokens
    price = StatedPrice(stated) if stated else ListedPrice(spec.vendor, model)
    try:
        module = importlib.import_module(f"reviews.vendors.{spec.vendor}")
    except ImportError as error:
        raise missing_package(spec.vendor) from error
    api = Api(spec.vendor, module.send, module.ERRORS, spec.base_url or module.ADDRESS, key or "no-key")
    return ModelReviewer(api, model, price, spec.effort)
