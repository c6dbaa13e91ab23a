"""The judge of ``best_of_n_verified`` stages."""

from __future__ import annotations

from reviews.stages.critique.measure import measure_verified as measure
from reviews.stages.critique.measure import read_verified as read

__all__ = ["measure", "read"]
