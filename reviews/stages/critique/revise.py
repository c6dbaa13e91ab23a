"""The judge of ``revise`` stages."""

from __future__ import annotations

from reviews.stages.critique.measure import measure_revise as measure
from reviews.stages.critique.measure import read_revise as read

__all__ = ["measure", "read"]
