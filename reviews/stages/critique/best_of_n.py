"""The judge of ``best_of_n`` stages."""

from __future__ import annotations

from reviews.stages.critique.measure import measure_prefer as measure
from reviews.stages.critique.measure import read_prefer as read

__all__ = ["measure", "read"]
