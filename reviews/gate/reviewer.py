"""What every reviewer implements: it sees a packet and nothing else, and proposes a verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from specs.system.errors import ReviewerUnavailable
from specs.trail.tool_arguments import REVIEWER_TOOLS, Tool
from specs.trail.verdict import NoVerdict, Packet, Verdict

T = TypeVar("T")


class PendingVerdict(Exception):
    """A person was asked for a verdict and has not given one yet: the session waits, no verdict is recorded."""


class PacketReviewer(Protocol):
    """Judges a packet."""

    name: str

    def review(self, packet: Packet, packet_digest: str) -> Verdict:
        """Return findings whose spans name ``packet_digest`` and point into the packet.

        Raises:
            Blocked: no verdict can be had (down, refused, timed out, answered outside the schema); the gate stays
                closed.
        """
        ...


@dataclass(frozen=True)
class Earlier:
    """A whole answer before the last one: it could not be read, or it looked something up."""

    request: bytes
    response: bytes
    error: str
    """The complaint about an answer that could not be read; empty for an answer that looked something up."""


@dataclass(frozen=True)
class LookupRecord:
    """Something that a reviewer looked up: where it is recorded, and the digest of what it was answered."""

    entry: str
    answer: str


class LookupAnswer(NamedTuple):
    """The answer to a call of a reviewer, and the key of the entry that holds both."""

    text: str
    is_error: bool
    entry: str


class Looking(NamedTuple):
    """What a reviewer may look into while it judges a packet."""

    names: tuple[str, ...]
    """What can be read, a line each."""
    look: Callable[[str, str, int], LookupAnswer]
    """Carries a call out: tool, arguments, and the most bytes of its answer."""
    tools: tuple[Tool, ...] = REVIEWER_TOOLS


@dataclass(frozen=True)
class ReviewExchange:
    """The HTTP exchange of one review, and what it cost."""

    request: bytes
    """Body of the last request: without headers, so without the key."""
    response: bytes | None
    """Body of the last response after content decoding; None without a whole response."""
    statuses: tuple[int | None, ...]
    """HTTP status of every call in order; None for a call without a whole response."""
    model: str | None
    """The model as the answer names it, which may differ from the requested model."""
    usage: dict[str, int] | None
    usd: float
    usd_is_measured: bool
    """False when the usage is not known and ``usd`` is therefore the whole cost cap."""
    seconds: float
    reasoning: str | None = None
    """The reasoning effort that was requested; None when none was."""
    earlier: tuple[Earlier, ...] = ()
    """Answers before the last one; tokens and USD are those of all."""
    looked: tuple[LookupRecord, ...] = ()
    """What the reviewer looked up, in order."""


FACTS = frozenset(field.name for field in fields(ReviewExchange))
"""The names of what :func:`facts_of` returns."""


def facts_of(exchange: ReviewExchange, keep: Callable[[bytes], str]) -> dict[str, Any]:
    """Return what the trail records of an exchange; ``keep`` returns the digest of a body."""
    earlier = [
        {"request": keep(earlier.request), "response": keep(earlier.response), "error": earlier.error}
        for earlier in exchange.earlier
    ]
    looked = [vars(value) for value in exchange.looked]
    rest = {name: value for name, value in vars(exchange).items() if name not in ("earlier", "looked")}
    return (
        rest
        | ({"earlier": earlier} if earlier else {})
        | ({"looked": looked} if looked else {})
        | {
            "request": keep(exchange.request) if exchange.request else None,
            "response": keep(exchange.response) if exchange.response is not None else None,
            "statuses": list(exchange.statuses),
        }
    )


def no_verdict(reviewer: str, why: NoVerdict) -> Verdict:
    """Return the verdict that is recorded when a reviewer gave none: it approves nothing."""
    return Verdict(
        reviewer=reviewer,
        findings=(),
        recommendation="none: the reviewer gave no verdict",
        reasoning=str(why),
        risks=(),
        approve=False,
        no_verdict=why,
    )


@dataclass(frozen=True)
class ModelOutcome(Generic[T]):
    """The outcome of asking a model: exactly one of ``value`` and ``error``."""

    exchange: ReviewExchange
    value: T | None = None
    error: ReviewerUnavailable | None = None


@runtime_checkable
class PaidReviewer(PacketReviewer, Protocol):
    """A reviewer whose reviews cost money and leave an exchange."""

    def review(self, packet: Packet, packet_digest: str) -> Verdict:
        """Return the verdict, without what it took; errors as in :meth:`PacketReviewer.review`."""
        review = self.ask(packet, packet_digest)
        if review.value is None:
            raise review.error or ReviewerUnavailable("no verdict", where=self.name)
        return review.value

    def cost_cap(self, packet: Packet) -> float:
        """Return the most USD a review of this packet can cost."""
        ...

    def ask(self, packet: Packet, packet_digest: str, looking: Looking | None = None) -> ModelOutcome[Verdict]:
        """Ask, and return verdict or error together with what it took; ``looking``: what may be looked into."""
        ...
