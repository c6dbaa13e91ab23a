"""What is known of one file of an older trail, and of the trail as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from reviews.legacy.dates import Times
from reviews.legacy.labels import Statement
from reviews.legacy.pairing import Contradiction, Pair
from specs.text import plain

Status = Literal["verdict", "undetermined", "transport_error", "incomplete"]
LegacyVerdict = Literal["approve", "approve_with_conditions", "revise", "reject"]
_SHOWN = 240


class Record(NamedTuple):
    """What one file decided; docs/how-to/older-reviews.md describes the fields.

    ``confidence`` is high (a labelled decision), medium (a statement without a label) or none (no verdict).
    """

    source: str
    status: Status
    verdict: LegacyVerdict | None
    confidence: Literal["high", "medium", "none"]
    evidence: str
    digest: str | None
    why: str = ""
    bytes: int | None = None
    said: tuple[Statement, ...] = ()
    time: Times | None = None
    pairs: tuple[Pair, ...] = ()
    contradicts: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the record as a JSON value."""
        return self._asdict() | {
            "imported": True,
            "opens_a_gate": False,
            "time": self.time.as_json() if self.time else None,
            "said": [one._asdict() | {"text": one_line(one.text, 1000)} for one in self.said],
            "pairs": [{"source": one.other(self.source), "kind": one.kind, "by": list(one.by)} for one in self.pairs],
        }


class Trail(NamedTuple):
    """The records of a folder, and what became visible only between them.

    ``passed_over`` names hidden folders and the like that were not read; ``history`` says why commits are unknown and
    is empty when they are known.
    """

    records: tuple[Record, ...]
    pairs: tuple[Pair, ...]
    contradictions: tuple[Contradiction, ...]
    passed_over: tuple[str, ...]
    history: str

    def as_json(self) -> dict[str, Any]:
        """Return the trail as a JSON value."""
        return {
            "records": [one.as_json() for one in self.records],
            "counts": counts(self.records),
            "pairs": [one._asdict() for one in self.pairs],
            "contradictions": [one._asdict() for one in self.contradictions],
            "time_conflicts": [
                {"source": one.source, "conflict": conflict}
                for one in self.records
                if one.time
                for conflict in one.time.conflicts
            ],
            "passed_over": list(self.passed_over),
            "history": self.history or "known",
        }


def counts(records: Sequence[Record]) -> dict[str, int]:
    """Return how many records have each status and each verdict."""
    found = Counter[str](one.status for one in records)
    found.update(one.verdict for one in records if one.verdict)
    return dict(sorted(found.items()))


def one_line(text: str, limit: int = _SHOWN) -> str:
    """Return untrusted text as one printable line."""
    return plain(" ".join(plain(text, 4 * limit).split()), limit)
