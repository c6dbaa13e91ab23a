"""The judge of ``base_model_check`` stages."""

from __future__ import annotations

from reviews.stages.generation.measure import measure_guard as measure
from reviews.stages.generation.trace import sentinels as trace

__all__ = ["measure", "trace"]
