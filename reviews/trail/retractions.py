"""Judgements in force: a retraction voids the judgement it names and every one between the two."""

from __future__ import annotations

from collections.abc import Sequence

from reviews.trail.chain.envelope import RecordedEntry
from specs.trail.entry import EntryKind

JUDGEMENTS: tuple[EntryKind, ...] = ("decision", "human")
"""What can open a stage."""


def find_retracted_judgements(entries: Sequence[RecordedEntry]) -> frozenset[int]:
    """Return the numbers of the judgements that were taken back, directly or because they followed one that was."""
    pairs = [(entry.raw["since"], entry.seq) for entry in entries if entry.kind == "retraction"]
    judged = [entry.seq for entry in entries if entry.kind in JUDGEMENTS]
    return frozenset(seq for seq in judged if any(first <= seq < last for first, last in pairs))


def standing(entries: Sequence[RecordedEntry]) -> list[RecordedEntry]:
    """Return the entries without the judgements that were taken back."""
    void = find_retracted_judgements(entries)
    return [entry for entry in entries if entry.seq not in void]


def newest_judgement(entries: Sequence[RecordedEntry]) -> RecordedEntry | None:
    """Return the newest decision, answer of a person or retraction; a retraction leaves nothing open."""
    return next((entry for entry in reversed(entries) if entry.kind in (*JUDGEMENTS, "retraction")), None)


def next_attempt(entries: Sequence[RecordedEntry], stage: str) -> int:
    """Return the number of the next attempt of a stage: numbers only grow, whatever was taken back."""
    opened = [entry.raw.get("opens") for entry in entries if entry.kind in JUDGEMENTS]
    return max((value["attempt"] for value in opened if value and value["stage"] == stage), default=0) + 1
