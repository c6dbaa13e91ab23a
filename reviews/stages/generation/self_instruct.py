"""The judge of ``self_instruct`` stages."""

from __future__ import annotations

from reviews.stages.generation.measure import measure_instruct as measure
from reviews.stages.generation.trace import calls as trace

__all__ = ["measure", "trace"]
