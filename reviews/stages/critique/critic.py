"""The judge of ``critique_instructions`` and ``critique_responses`` stages."""

from __future__ import annotations

from reviews.stages.critique.measure import measure_kappa as measure
from reviews.stages.critique.measure import read_critiques as read

__all__ = ["measure", "read"]
