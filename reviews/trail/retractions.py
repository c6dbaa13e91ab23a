"""Judgements in force: a retraction voids the judgement it names and every one between the two."""

from __future__ import annotations

from collections.abc import Sequence

from reviews.trail.envelope import Recorded
from specs.trail.entry import EntryKind

JUDGEMENTS: tuple[EntryKind, ...] = ("decision", "human")
"""What can open a stage."""


def retracted(entries: Sequence[Recorded]) -> frozenset[int]:
    """Return the numbers of the judgements that were taken back, directly or because they followed one that was."""
    taken = [(one.body["since"], one.entry.seq) for one in entries if one.entry.kind == "retraction"]
    judged = [one.entry.seq for one in entries if one.entry.kind in JUDGEMENTS]
    return frozenset(seq for seq in judged if any(first <= seq < last for first, last in taken))


def standing(entries: Sequence[Recorded]) -> list[Recorded]:
    """Return the entries without the judgements that were taken back."""
    void = retracted(entries)
    return [one for one in entries if one.entry.seq not in void]


def newest_judgement(entries: Sequence[Recorded]) -> Recorded | None:
    """Return the newest decision, answer of a person or retraction; a retraction leaves nothing open."""
    return next((one for one in reversed(entries) if one.entry.kind in (*JUDGEMENTS, "retraction")), None)


def next_attempt(entries: Sequence[Recorded], stage: str) -> int:
    """Return the number of the next attempt of a stage: numbers only grow, whatever was taken back."""
    opened = [one.body.get("opens") for one in entries if one.entry.kind in JUDGEMENTS]
    return max((one["attempt"] for one in opened if one and one["stage"] == stage), default=0) + 1
