"""The judge of ``base_model_check`` stages."""

from __future__ import annotations

from reviews.stages.generation.measure import read_sentinels as read

__all__ = ["read"]
