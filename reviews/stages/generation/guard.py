"""The judge of ``guard`` stages."""

from __future__ import annotations

from reviews.stages.generation.measure import measure_guard as measure
from reviews.stages.generation.trace import sentinels as trace

__all__ = ["measure", "trace"]
