"""The judge of ``sft`` stages."""

from __future__ import annotations

from typing import Any

from reviews.evidence.evidence import Evidence
from reviews.stages.finetuning.measure import read, steps_of

__all__ = ["read", "shown"]


def shown(evidence: Evidence) -> list[dict[str, Any]]:
    """Return the optimizer steps; errors as :func:`steps_of`."""
    return [row.model_dump(mode="json") for row in steps_of(evidence)]
