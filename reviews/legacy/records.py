"""What is known of one file of an older trail, and of the trail as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from reviews.legacy.answers import Answer
from reviews.legacy.conditions import LegacyCondition
from reviews.legacy.findings import LegacyFinding
from reviews.legacy.marks import Seen
from reviews.legacy.pairs import Contradiction, Pair
from reviews.legacy.provenance import Provenance
from reviews.legacy.references import Reference
from reviews.legacy.stamps import Times
from reviews.legacy.text import Confidence, LegacyVerdict, Status
from specs.text import plain

_SHOWN = 240
_TEXT = 1000


class Record(NamedTuple):
    """What one file decided, and what else it holds.

    ``confidence`` is high (a labelled decision), medium (a statement of its own), low (words within prose) or none (no
    verdict). The first six fields are stable; they and the rest are described in docs/how-to/older-reviews.md.
    """

    source: str
    status: Status
    verdict: LegacyVerdict | None
    confidence: Confidence
    evidence: str
    digest: str | None
    why: str = ""
    leaning: str | None = None
    shape: str = ""
    raw: str = ""
    bytes: int | None = None
    said: tuple[Seen, ...] = ()
    findings: tuple[LegacyFinding, ...] = ()
    conditions: tuple[LegacyCondition, ...] = ()
    answers: tuple[Answer, ...] = ()
    questions: tuple[tuple[int, str], ...] = ()
    references: tuple[Reference, ...] = ()
    provenance: Provenance = Provenance()
    request: str | None = None
    time: Times | None = None
    pairs: tuple[Pair, ...] = ()
    contradicts: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the record as a JSON value."""
        answered = {one.number for one in self.answers}
        return {
            "source": self.source,
            "status": self.status,
            "verdict": self.verdict,
            "confidence": self.confidence,
            "evidence": self.evidence,
            "digest": self.digest,
            "bytes": self.bytes,
            "why": self.why,
            "leaning": self.leaning,
            "shape": self.shape,
            "raw": self.raw,
            "imported": True,
            "opens_a_gate": False,
            "request": self.request or self.provenance.request or "unknown",
            "model": self.provenance.model or "unknown",
            "effort": self.provenance.effort or "unknown",
            "tokens": self.provenance.tokens or "unknown",
            "cost": self.provenance.cost or "unknown",
            "time": self.time.as_json() if self.time else None,
            "said": [
                {
                    "line": one.line,
                    "verdict": _NAMED[one.mark],
                    "form": one.form,
                    "of": one.scope or None,
                    "text": short(one.text),
                }
                for one in self.said
            ],
            "findings": [
                {
                    "severity": one.severity,
                    "line": one.line,
                    "text": short(one.text),
                    "evidence": [str(cited) for cited in one.evidence],
                    "settled": one.settled,
                }
                for one in self.findings
            ],
            "conditions": [
                {"line": one.line, "text": short(one.text), "due": one.due, "binding": one.binding}
                for one in self.conditions
            ],
            "answers": [
                {
                    "number": one.number,
                    "line": one.line,
                    "question": one.question and short(one.question),
                    "answer": short(one.answer),
                }
                for one in self.answers
            ],
            "unanswered": [
                {"number": number, "question": short(text)} for number, text in self.questions if number not in answered
            ],
            "references": [one.as_json() for one in self.references],
            "pairs": [{"source": one.other(self.source), "kind": one.kind, "by": list(one.by)} for one in self.pairs],
            "contradicts": list(self.contradicts),
        }


_NAMED = {
    "approve": "approve",
    "conditions": "approve_with_conditions",
    "revise": "revise",
    "reject": "reject",
    "denied": "not approved",
    "unclear": "unclear",
    "open": "neither",
}


class Trail(NamedTuple):
    """The records of a folder, and what became visible only between them."""

    records: tuple[Record, ...]
    pairs: tuple[Pair, ...]
    contradictions: tuple[Contradiction, ...]
    passed_over: tuple[str, ...]
    """Hidden folders and the like that were not read."""
    history: str
    """Why commits are unknown; empty when they are known."""

    def as_json(self) -> dict[str, Any]:
        """Return the trail as a JSON value."""
        return {
            "records": [one.as_json() for one in self.records],
            "counts": counts(self.records),
            "pairs": [{"sources": list(one.sources), "kind": one.kind, "by": list(one.by)} for one in self.pairs],
            "contradictions": [
                {"sources": list(one.sources), "verdicts": list(one.verdicts), "opposite": one.opposite}
                for one in self.contradictions
            ],
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
