"""The judge of ``best_of_n`` stages."""

from __future__ import annotations

from reviews.stages.critique.measure import measure_prefer as measure
from reviews.stages.critique.trace import compared_responses as trace

__all__ = ["measure", "trace"]
