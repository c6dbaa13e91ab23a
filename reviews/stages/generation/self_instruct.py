"""The judge of ``self_instruct`` stages."""

from __future__ import annotations

from reviews.stages.generation.measure import read_calls as read

__all__ = ["read"]
