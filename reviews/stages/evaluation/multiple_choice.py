"""The judge of ``multiple_choice`` stages."""

from __future__ import annotations

from pathlib import Path

from reviews.evidence.evidence import Evidence
from reviews.stages.evaluation.measure import chosen_right, questions
from reviews.stages.evaluation.measure import measure_choices as measure
from reviews.stages.evaluation.trace import choices as trace
from specs.session.evaluation_plan import Outcome

__all__ = ["measure", "outcomes", "trace"]


def outcomes(evidence: Evidence, path: Path | None, outcome: Outcome) -> list[float]:
    """Return whether the right choice is the likeliest, or by how many nats per byte.

    Raises:
        EvidenceMissing: as :func:`questions`.
    """
    if outcome == "binary":
        return [float(right) for right in chosen_right(evidence, path)]
    found: list[float] = []
    for answer, row in questions(evidence, path):
        nats = [one.nats / one.bytes for one in row.choices]
        found.append(min(nats[:answer] + nats[answer + 1 :]) - nats[answer])
    return found
