"""The judge of ``dpo`` stages."""

from __future__ import annotations

from reviews.stages.finetuning.measure import read

__all__ = ["read"]
