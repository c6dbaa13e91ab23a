"""What is known of one file of an older trail, and of the trail as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from reviews.legacy.dates import Times
from reviews.legacy.labels import Statement
from specs.text import plain

Status = Literal["verdict", "undetermined", "transport_error", "incomplete"]
LegacyVerdict = Literal["approve", "approve_with_conditions", "revise", "reject"]
_SHOWN = 240


class Record(NamedTuple):
    """What one file decided.

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
    time: Times = Times()

    def as_json(self) -> dict[str, Any]:
        """Return the record as a JSON value."""
        return self._asdict() | {
            "imported": True,
            "opens_a_gate": False,
            "time": self.time.as_json(),
            "said": [one._asdict() | {"text": one_line(one.text, 1000)} for one in self.said],
        }


class Pair(NamedTuple):
    """Two files that belong together, and by what."""

    kind: Literal["copy", "duplicate", "other version", "other reviewer"]
    sources: tuple[str, str]
    by: tuple[str, ...]


class Contradiction(NamedTuple):
    """Two files of one pair with different verdicts; ``opposite`` when only one of them approves."""

    sources: tuple[str, str]
    verdicts: tuple[str, str]
    opposite: bool


class Trail(NamedTuple):
    """The records of a folder, and what only several files show.

    ``passed_over`` names the folders that were not read; ``history`` says why commits are unknown, empty if they are
    known.
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
                {"source": one.source, "conflict": conflict} for one in self.records for conflict in one.time.conflicts
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
