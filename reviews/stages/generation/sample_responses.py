"""The judge of ``sample_responses`` stages."""

from __future__ import annotations

from reviews.stages.generation.measure import measure_residue as measure
from reviews.stages.generation.measure import read_answers as read

__all__ = ["measure", "read"]
