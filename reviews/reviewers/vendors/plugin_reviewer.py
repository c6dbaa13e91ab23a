"""Runs a reviewer of another distribution, in the reviewer's process only."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from reviews.gate.reviewer import Looking, LookupAnswer, LookupRecord, ModelOutcome, ReviewExchange
from reviews.reviewers.vendors.effort_tiers import effort_of
from reviews.reviewers.vendors.looking import ANSWER_BYTES, MOST_CALLS
from specs.session.reviewer_vendor import ReviewerVendor, plugin_key, vendor_of
from specs.system import plugins
from specs.system.digests import digest_bytes
from specs.system.errors import PluginFault, ReviewerUnavailable
from specs.system.text import plain
from specs.system.vendors.parties import ReviewerSpec as ReviewerSpec
from specs.system.vendors.parties import ReviewLimits
from specs.trail.verdict import Packet, Verdict

RULES_SECONDS = 45.0
"""For a reviewer without a model: less than the session waits for the process (``ANSWER_S``)."""


class PluginReviewRequest(NamedTuple):
    """What a reviewer gets next to the packet."""

    digest: str
    """The digest of the packet; spans name it as their artifact."""
    model: str | None
    key: str
    effort: ReviewLimits
    looking: Looking | None = None
    """Carries out calls of tools over the evidence, where the spec says ``looks``; spans may quote the answers."""


class PluginReviewFunction(Protocol):
    """The function of a vendor: judges a packet, sees nothing else."""

    def __call__(self, packet: Packet, request: PluginReviewRequest, /) -> Verdict:
        """Return findings whose spans point into the packet, and whether the result may be used."""
        ...


class PluginReviewer:
    """A :class:`reviews.gate.reviewer.PacketReviewer` that another distribution brings."""

    def __init__(self, spec: ReviewerSpec, vendor: ReviewerVendor, key: str) -> None:
        self.name = f"{spec.vendor}:{spec.model}" if spec.asks_a_model else spec.vendor
        self._spec = spec
        self._vendor = vendor
        self._key = key

    def review(self, packet: Packet, packet_digest: str, looking: Looking | None = None) -> Verdict:
        """Return its verdict, with its registered name; raises ReviewerUnavailable if it gives no complete one."""
        effort = effort_of(packet, self._spec.effort)
        seconds = effort.timeout_s if self._spec.asks_a_model else RULES_SECONDS
        request = PluginReviewRequest(packet_digest, self._spec.model, self._key, effort, looking)
        try:
            statement = plugins.run_bounded(
                lambda: _function(self._vendor)(packet, request), self.name, seconds, "review"
            )
        except PluginFault as fault:
            hint = "fix that distribution, or decide yourself"
            cause = "timed_out" if fault.__cause__ is None else "unusable"
            raise ReviewerUnavailable(fault.message, where=self.name, hint=hint, cause=cause) from fault
        return self._verdict(statement)

    def _verdict(self, statement: Any) -> Verdict:
        """Return the answer, validated again: nothing binds a plug-in to the types of its fields."""

        def refuse(what: str, detail: str = "") -> ReviewerUnavailable:
            return ReviewerUnavailable(what, where=self.name, cause="out_of_schema", detail=detail)

        if not isinstance(statement, Verdict):
            raise refuse(f"returns a {plain(type(statement).__name__, 60)}, which is not a verdict")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Of fields of another type, which reading again refuses.
                verdict = Verdict.model_validate_json(statement.canonical(), strict=True)
        except (ValueError, TypeError, AttributeError) as error:
            raise refuse("returns an invalid verdict", plain(str(error), 200)) from error
        if verdict.no_verdict is not None or verdict.votes or verdict.quorum != 1:
            raise refuse("returns a verdict for others: only Peergate states votes or a missing verdict")
        return verdict.model_copy(update={"reviewer": self.name})


class _Looks:
    """Carries out what a plug-in looks up, one call at a time and none after its review, and remembers it."""

    def __init__(self, looking: Looking, most: int) -> None:
        self._asks, self._left = looking, most
        self._is_over = False
        # A review that took too long goes on in its thread, and messages to the session must not mix.
        self._call_lock = threading.Lock()
        self.looked: list[LookupRecord] = []
        self.looking = looking._replace(look=self._look)

    def _look(self, tool: str, arguments: str, most: int = ANSWER_BYTES) -> LookupAnswer:
        with self._call_lock:
            if self._is_over:
                raise RuntimeError("the review is over")
            if not self._left:
                return LookupAnswer("not carried out: nothing more may be looked up", True, "")
            self._left -= 1
            result = self._asks.look(tool, arguments, min(most, ANSWER_BYTES))
            self.looked.append(LookupRecord(result.entry, digest_bytes(result.text.encode())))
            return result

    def end(self) -> None:
        """Refuse every later call, and wait for a call in progress."""
        self._is_over = True
        with self._call_lock:
            pass


class PaidPluginReviewer(PluginReviewer):
    """A :class:`reviews.gate.reviewer.PaidReviewer`: what it sends is its own, so its whole cap counts as spent."""

    def cost_cap(self, packet: Packet) -> float:
        """Return the most USD a review of this packet can cost; 0 where the spec says that tokens are free."""
        price = self._spec.usd_per_million_tokens
        return 0.0 if price is not None and price.is_free else effort_of(packet, self._spec.effort).max_cost_usd

    def ask(self, packet: Packet, packet_digest: str, looking: Looking | None = None) -> ModelOutcome[Verdict]:
        """Ask once, and return verdict or error together with what it took."""
        began = time.monotonic()
        looks = _Looks(looking, self._spec.looks * MOST_CALLS) if looking is not None and self._spec.looks else None
        try:
            verdict, failed = self.review(packet, packet_digest, looks and looks.looking), None
        except ReviewerUnavailable as error:
            verdict, failed = None, error
        finally:
            if looks is not None:
                looks.end()
        exchange = ReviewExchange(
            request=b"",
            response=None,
            statuses=(),
            model=self._spec.model,
            usage=None,
            usd=self.cost_cap(packet),
            usd_is_measured=False,
            seconds=round(time.monotonic() - began, 3),
            reasoning=effort_of(packet, self._spec.effort).reasoning,
            looked=tuple(looks.looked) if looks else (),
        )
        return ModelOutcome(exchange, value=verdict, error=failed)


def _function(vendor: ReviewerVendor) -> Callable[[Packet, PluginReviewRequest], Any]:
    """Return the function of a vendor, imported when it is first needed."""
    module, _, name = vendor.review.partition(":")
    return getattr(import_module(module), name)


def plugin_reviewer(spec: ReviewerSpec, environ: Mapping[str, str]) -> PluginReviewer:
    """Build the reviewer of a vendor that another distribution brings.

    Raises:
        PluginFault: the distribution is not installed, or its declaration cannot be used.
        UserError: the variable of its key is not set.
    """
    vendor = vendor_of(spec.vendor)
    made = PaidPluginReviewer if spec.asks_a_model else PluginReviewer
    return made(spec, vendor, plugin_key(vendor, environ))
