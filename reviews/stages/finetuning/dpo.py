"""The judge of ``dpo`` stages."""

from __future__ import annotations

from reviews.stages.finetuning.measure import measure_dpo as measure
from reviews.stages.finetuning.trace import preference_training as trace

__all__ = ["measure", "trace"]
