"""Bodies of the entries of people: answers, overrides, amendments and retractions."""

from __future__ import annotations

from typing import Any, Literal

from specs.digests import Contract, Digest
from specs.trail.gate_bodies import NamedCondition, Opens
from specs.trail.verdict import Outcome


class Answered(Contract):
    """``human``: what a person answered."""

    stage: str | None
    attempt: int
    asked: Digest
    """Of the entry that asks."""
    answer: Literal["retry", "approve", "stop"]
    reason: str
    by: str
    opens: Opens | None
    expires: float | None = None
    """Seconds since 1970, after which an approval that was not used opens nothing."""
    waives: tuple[str, ...] = ()


class Override(Contract):
    """``override``: a check lifted for a stage, or a condition waived."""

    check: str | None
    stage: str | None = None
    condition: str | None
    by: str
    reason: str
    expires: float | None = None


class SpecDifference(Contract):
    """One value of the spec before and after, by JSON pointer."""

    pointer: str
    before: Any
    after: Any


class Amendment(Contract):
    """``amendment``: a changed registration, with the review it had."""

    outcome: Outcome
    reasons: tuple[str, ...]
    registration: Digest
    spec: Digest
    source: Digest
    changes: tuple[SpecDifference, ...]
    exploratory: bool
    packet: Digest
    verdict: Digest
    by: str
    reason: str
    overridden: bool
    code: Digest
    conditions: tuple[NamedCondition, ...] = ()
    met: tuple[str, ...] = ()


class Retraction(Contract):
    """``retraction``: a judgement taken back, with everything it opened."""

    since: int
    """The number of the entry that is taken back."""
    stage: str | None
    attempt: int
    judgements: tuple[str, ...]
    grants: tuple[str, ...]
    by: str
    reason: str
    reasons: tuple[str, ...]
