"""Which judgements stand. A retraction voids the judgement it names and every one made between the two."""

from __future__ import annotations

from collections.abc import Sequence

from reviews.trail.envelope import Recorded
from specs.trail.entry import EntryKind

JUDGEMENTS: tuple[EntryKind, ...] = ("decision", "human")
"""What can open a stage."""


def retracted(entries: Sequence[Recorded]) -> frozenset[int]:
    """Return the numbers of the judgements that were taken back, directly or because they came after one that was."""
    void: set[int] = set()
    for taken in entries:
        if taken.entry.kind != "retraction":
            continue
        first = taken.body["since"]
        void |= {
            one.entry.seq
            for one in entries
            if one.entry.kind in JUDGEMENTS and first <= one.entry.seq < taken.entry.seq
        }
    return frozenset(void)


def standing(entries: Sequence[Recorded]) -> list[Recorded]:
    """Return the entries without the judgements that were taken back."""
    void = retracted(entries)
    return [one for one in entries if one.entry.seq not in void]


def newest_judgement(entries: Sequence[Recorded]) -> Recorded | None:
    """Return the newest decision, answer of a person or retraction; a retraction leaves nothing open."""
    return next((one for one in reversed(entries) if one.entry.kind in (*JUDGEMENTS, "retraction")), None)


def next_attempt(entries: Sequence[Recorded], stage: str) -> int:
    """Return the number of the next attempt of a stage: numbers only ever grow, whatever was taken back."""
    used = [0]
    for one in entries:
        opens = one.body.get("opens")
        if one.entry.kind in JUDGEMENTS and opens and opens["stage"] == stage:
            used.append(opens["attempt"])
    return max(used) + 1
