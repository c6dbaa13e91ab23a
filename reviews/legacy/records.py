"""What is known of one file of older reviews, and of a folder of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from specs.system.text import plain

Status = Literal["verdict", "undetermined", "transport_error", "incomplete"]
LegacyVerdict = Literal["approve", "approve_with_conditions", "revise", "reject"]
_SHOWN = 240


class Record(NamedTuple):
    """What one file decided; ``evidence`` is the line that says so."""

    source: str
    status: Status
    verdict: LegacyVerdict | None
    evidence: str
    digest: str | None
    why: str = ""
    bytes: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the record as a JSON value."""
        return self._asdict() | {"imported": True, "opens_a_gate": False}


class LegacyTrail(NamedTuple):
    """The records of a folder; ``passed_over`` names the folders that were not read."""

    records: tuple[Record, ...]
    passed_over: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the trail as a JSON value."""
        return {
            "records": [record.as_json() for record in self.records],
            "counts": counts(self.records),
            "passed_over": list(self.passed_over),
        }


def counts(records: Sequence[Record]) -> dict[str, int]:
    """Return how many records have each status and each verdict."""
    numbers = Counter[str](record.status for record in records)
    numbers.update(record.verdict for record in records if record.verdict)
    return dict(sorted(numbers.items()))


def one_line(text: str, limit: int = _SHOWN) -> str:
    """Return untrusted text as one printable line."""
    return plain(" ".join(plain(text, 4 * limit).split()), limit)
