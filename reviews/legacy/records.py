"""What is known of one file of an older trail, and of the trail as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from reviews.legacy.dates import Times
from reviews.legacy.labels import Statement
from reviews.legacy.pairing import Contradiction, Pair
from reviews.legacy.points import Answer, LegacyCondition, LegacyFinding
from reviews.legacy.references import Reference
from specs.text import plain

Status = Literal["verdict", "undetermined", "transport_error", "incomplete"]
LegacyVerdict = Literal["approve", "approve_with_conditions", "revise", "reject"]
_SHOWN = 240
_TEXT = 1000


class Record(NamedTuple):
    """What one file decided, and what else it holds.

    ``confidence`` is high (a labelled decision), medium (a statement without a label) or none (no verdict). The first
    six fields are stable; docs/how-to/older-reviews.md describes all.
    """

    source: str
    status: Status
    verdict: LegacyVerdict | None
    confidence: Literal["high", "medium", "none"]
    evidence: str
    digest: str | None
    why: str = ""
    leaning: str | None = None
    shape: str = ""
    raw: str = ""
    bytes: int | None = None
    said: tuple[Statement, ...] = ()
    findings: tuple[LegacyFinding, ...] = ()
    conditions: tuple[LegacyCondition, ...] = ()
    answers: tuple[Answer, ...] = ()
    questions: tuple[tuple[int, str], ...] = ()
    references: tuple[Reference, ...] = ()
    made: Mapping[str, str] = MappingProxyType({})
    """Model, effort, tokens and cost, as far as the file says them."""
    request: str | None = None
    time: Times | None = None
    pairs: tuple[Pair, ...] = ()
    contradicts: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the record as a JSON value."""
        answered = {one.number for one in self.answers}
        kept = (
            "source",
            "status",
            "verdict",
            "confidence",
            "evidence",
            "digest",
            "bytes",
            "why",
            "leaning",
            "shape",
            "raw",
        )
        return {
            **{name: getattr(self, name) for name in kept},
            "imported": True,
            "opens_a_gate": False,
            "request": self.request or "unknown",
            **{name: self.made.get(name, "unknown") for name in ("model", "effort", "tokens", "cost")},
            "time": self.time.as_json() if self.time else None,
            "said": [
                {
                    "line": one.line,
                    "verdict": one.mark,
                    "form": one.form,
                    "of": one.scope or None,
                    "text": short(one.text),
                }
                for one in self.said
            ],
            "findings": [one._asdict() | {"text": short(one.text)} for one in self.findings],
            "conditions": [one._asdict() | {"text": short(one.text)} for one in self.conditions],
            "answers": [
                one._asdict() | {"question": one.question and short(one.question), "answer": short(one.answer)}
                for one in self.answers
            ],
            "unanswered": [
                {"number": number, "question": short(text)} for number, text in self.questions if number not in answered
            ],
            "references": [one.as_json() for one in self.references],
            "pairs": [{"source": one.other(self.source), "kind": one.kind, "by": list(one.by)} for one in self.pairs],
            "contradicts": list(self.contradicts),
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
            "broken": [
                {"source": one.source} | ref.as_json()
                for one in self.records
                for ref in one.references
                if ref.state != "present"
            ],
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


def short(text: str) -> str:
    """Return a point of a review as one printable line."""
    return one_line(text, _TEXT)
