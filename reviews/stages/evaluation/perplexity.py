"""The judge of ``perplexity`` stages."""

from __future__ import annotations

from pathlib import Path

from reviews.evidence.evidence import Evidence
from reviews.stages.evaluation.measure import measure_perplexity as measure
from reviews.stages.evaluation.measure import ratio_interval, surprises
from reviews.stages.evaluation.trace import texts as trace
from reviews.stages.judge import Change
from specs.errors import EvidenceMissing
from specs.session.evaluation_plan import Outcome

__all__ = ["change", "measure", "outcomes", "trace"]


def outcomes(evidence: Evidence, path: Path | None, outcome: Outcome) -> list[float]:
    """Return the nats per byte of each text, turned round; errors as :func:`surprises`."""
    return [-row.nats / row.bytes for _, row in surprises(evidence, path)]


def change(evidence: Evidence, before: str) -> Change:
    """Return the change in nats per byte since an earlier stage.

    Raises:
        EvidenceMissing: as :func:`surprises`, or there is one text only.
    """
    ours = surprises(evidence, evidence.outputs.get("rows"))
    theirs = surprises(evidence, evidence.arms[before].rows)
    saved = [was.nats - is_.nats for (_, is_), (_, was) in zip(ours, theirs, strict=True)]
    size = [float(row.bytes) for _, row in ours]
    value = sum(saved) / sum(size)
    interval = ratio_interval(saved, size)
    if interval is None:
        raise EvidenceMissing("one text alone says nothing of others")
    return Change(value, interval, f"{-value:+.4f} nats per byte on {len(size)} texts (less is better)")
