"""Reviewers as the session sees them: each is asked through the process that holds their keys."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec

from reviews.gate.reviewer import Looking, ModelOutcome, PaidReviewer
from reviews.reviewers.checklist import Checklist
from reviews.reviewers.process import messages
from reviews.reviewers.process.client import ANSWER_S, ReviewerProcess
from reviews.reviewers.vendors.effort_tiers import MOST_REFUTED, effort_of
from specs.session.reviewer_vendor import plugin_key, vendor_of
from specs.system.digests import digest_bytes
from specs.system.errors import ReviewerUnavailable
from specs.system.vendors.api_keys import find_key
from specs.system.vendors.parties import ReviewerSpec as ReviewerSpec
from specs.system.vendors.prices import ModelPrice, is_free, missing_package, price_of
from specs.trail.verdict import NoVerdict, Packet, Verdict

SLACK_S = 30.0
"""The process may take so much longer than its model."""


class Apart:
    """A reviewer in the reviewer's process that costs nothing."""

    def __init__(self, process: ReviewerProcess, number: int, name: str) -> None:
        self._process = process
        self._number = number
        self.name = name

    def review(self, packet: Packet, packet_digest: str) -> Verdict:
        """Return the verdict; raises ReviewerUnavailable with the reason that the process gives."""
        statement = self._request_review(packet, packet_digest, ANSWER_S)
        if statement.verdict is None:
            raise _as_error(statement.no_verdict, self.name)
        return read_verdict(statement, self.name)

    def _request_review(self, packet: Packet, digest: str, seconds: float) -> messages.VerdictMessage:
        data = packet.canonical()
        if digest_bytes(data) != digest:
            raise ReviewerUnavailable(f"the packet has the digest {digest_bytes(data)}, not {digest}", where=self.name)
        readable = self._process.readable
        question = messages.ReviewMessage(reviewer=self._number, packet=data.decode(), digest=digest, readable=readable)
        return self._process.ask(question, messages.VerdictMessage, seconds)


class ModelApart(Apart, PaidReviewer):
    """A reviewer in the reviewer's process that asks a model."""

    def __init__(self, process: ReviewerProcess, number: int, spec: ReviewerSpec, free: bool) -> None:
        super().__init__(process, number, f"{spec.vendor}:{spec.model or ''}")
        self._spec = spec
        self._is_free = free

    @property
    def looks(self) -> int:
        """In how many answers to one packet it may look into the evidence."""
        return self._spec.looks or 0

    @property
    def canary_rate(self) -> float:
        """The probability with which it is also put a packet with a planted flaw."""
        return self._spec.canary_rate

    def cost_cap(self, packet: Packet) -> float:
        """Return the most USD a review of this packet can cost; 0 when tokens are free."""
        return 0.0 if self._is_free else effort_of(packet, self._spec.effort).max_cost_usd

    def review(self, packet: Packet, packet_digest: str) -> Verdict:
        """Return the verdict, without what it took."""
        return PaidReviewer.review(self, packet, packet_digest)

    def ask(self, packet: Packet, packet_digest: str, looking: Looking | None = None) -> ModelOutcome[Verdict]:
        """Ask; return verdict or error with what it took, and raise ReviewerUnavailable if the process is gone.

        What may be looked into is the process's own ``readable`` and ``look``.
        """
        # A model is asked at most twice in a row without looking something up; each time it does, the time begins
        # anew, and while its API is down the process says so and the time does not run.
        calls = 2 * (1 + (MOST_REFUTED if self._spec.refutation else 0))
        seconds = calls * effort_of(packet, self._spec.effort).timeout_s + SLACK_S
        statement = self._request_review(packet, packet_digest, seconds)
        if statement.exchange is None:
            raise _as_error(statement.no_verdict, self.name)
        verdict = None if statement.verdict is None else read_verdict(statement, self.name)
        return ModelOutcome(
            statement.exchange, value=verdict, error=None if verdict else _as_error(statement.no_verdict, self.name)
        )


def read_verdict(statement: messages.VerdictMessage, who: str) -> Verdict:
    """Return the verdict of an answer; raises ReviewerUnavailable if it is not a whole verdict."""
    try:
        return Verdict.model_validate(json.loads(statement.verdict or ""))
    except ValueError as error:
        what = "the reviewer's process sent no whole verdict"
        raise ReviewerUnavailable(what, where=who, cause="process_lost") from error


def party(process: ReviewerProcess, number: int) -> Apart:
    """Return one of the reviewers of a process; a person is not among them.

    Raises:
        UserError: its key is not set, a package it needs is not installed, or no price is known of its model.
        PluginFault: another distribution brings it, and its declaration cannot be used.
    """
    spec = process.reviewers[number]
    if spec.vendor == Checklist.name:
        return Apart(process, number, Checklist.name)
    if spec.is_plugin:
        plugin_key(vendor_of(spec.vendor), process.environ)
        if not spec.asks_a_model:
            return Apart(process, number, spec.vendor)
        stated = spec.usd_per_million_tokens
        return ModelApart(process, number, spec, stated is not None and stated.is_free)
    return ModelApart(process, number, spec, is_free(_known_price(spec, process)))


def _known_price(spec: ReviewerSpec, process: ReviewerProcess) -> ModelPrice:
    """Check here, before anything is paid for, what the process would find at the first gate."""
    find_key("reviewer", spec.vendor, spec.base_url, process.environ)
    if find_spec(spec.vendor) is None:
        raise missing_package(spec.vendor)
    return price_of(spec.vendor, spec.model or "", spec.usd_per_million_tokens, "reviewer")


def _as_error(why: NoVerdict | None, who: str) -> ReviewerUnavailable:
    if why is None or why.cause in ("budget", "withdrawn", "suspended"):
        return ReviewerUnavailable("the reviewer's process gives neither a verdict nor a reason", where=who)
    return ReviewerUnavailable(why.what, where=who, hint=why.help, cause=why.cause, detail=why.detail)


def merge(process: ReviewerProcess, packet: str, quorum: int, members: Sequence[messages.Spoken]) -> Verdict:
    """Return the verdict of a panel, also when too few answered; raises ReviewerUnavailable if it is refused."""
    requested_merge = messages.MergeMessage(packet=packet, quorum=quorum, members=tuple(members))
    return read_verdict(process.ask(requested_merge, messages.VerdictMessage), "panel")


def repeat(process: ReviewerProcess, packet: bytes, before: bytes, spoken: messages.Spoken) -> Verdict:
    """Return the earlier verdict on the same evidence, turned to this packet; errors as in :func:`merge`."""
    requested_repeat = messages.RepeatMessage(packet=packet.decode(), before=before.decode(), spoken=spoken)
    return read_verdict(process.ask(requested_repeat, messages.VerdictMessage), "earlier verdict")


def no_verdict(process: ReviewerProcess, packet: str, reviewer: str, why: NoVerdict) -> Verdict:
    """State why a review gave no verdict; raises ReviewerUnavailable if the process is gone."""
    verdict = messages.NoVerdictMessage(packet=packet, reviewer=reviewer, why=why)
    return read_verdict(process.ask(verdict, messages.VerdictMessage), reviewer)
