"""The judge of ``sample_responses`` stages."""

from __future__ import annotations

from reviews.stages.generation.measure import measure_respond as measure
from reviews.stages.generation.trace import responses as trace

__all__ = ["measure", "trace"]
