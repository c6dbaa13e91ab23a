"""The judge of ``pairwise_judge`` stages."""

from __future__ import annotations

from reviews.stages.evaluation.measure import measure_duels as measure
from reviews.stages.evaluation.trace import judgements as trace

__all__ = ["measure", "trace"]
