"""The protocol every reviewer meets: it sees a packet and nothing else, and proposes a verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from specs.errors import ReviewerUnavailable
from specs.trail.no_verdict import NoVerdict
from specs.trail.verdict import Packet, Verdict

T = TypeVar("T")


class Unanswered(Exception):
    """A person was asked for a verdict and has not given one yet: the session waits, no verdict is recorded."""


class Reviewer(Protocol):
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
class Exchange:
    """What went over the wire for one review, and what it cost."""

    request: bytes
    """Body of the last request: without headers, so without the key."""
    response: bytes | None
    """Body of the last response after content decoding; None when there was none, or not to its end."""
    statuses: tuple[int | None, ...]
    """HTTP status of every call in order; None for a call without a whole response."""
    model: str | None
    """The model as the answer names it, which need not be the one that was asked for."""
    usage: dict[str, int] | None
    usd: float
    usd_is_measured: bool
    """False when the usage is not known and ``usd`` is therefore the whole cost cap."""
    seconds: float
    reasoning: str | None = None
    """How hard the model was asked to think; None when it was asked nothing."""


FACTS = frozenset(one.name for one in fields(Exchange))
"""The names of what :func:`facts_of` returns."""


def facts_of(exchange: Exchange, keep: Callable[[bytes], str]) -> dict[str, Any]:
    """Return what the trail says about an exchange; ``keep`` returns the digest of a body, having kept it or not."""
    return vars(exchange) | {
        "request": keep(exchange.request) if exchange.request else None,
        "response": keep(exchange.response) if exchange.response is not None else None,
        "statuses": list(exchange.statuses),
    }


def no_verdict(reviewer: str, why: NoVerdict) -> Verdict:
    """Return what stands in the place of a verdict that nobody gave: it approves nothing."""
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
class Answered(Generic[T]):
    """The outcome of asking a model: exactly one of ``value`` and ``error``."""

    exchange: Exchange
    value: T | None = None
    error: ReviewerUnavailable | None = None


@runtime_checkable
class PaidReviewer(Protocol):
    """A reviewer whose reviews cost money and leave an exchange."""

    name: str

    def review(self, packet: Packet, packet_digest: str) -> Verdict:
        """Return the verdict; see :meth:`Reviewer.review`."""
        ...

    def cost_cap(self, packet: Packet) -> float:
        """Return the most USD a review of this packet can cost."""
        ...

    def ask(self, packet: Packet, packet_digest: str) -> Answered[Verdict]:
        """Ask, and return verdict or error together with what it took."""
        ...
