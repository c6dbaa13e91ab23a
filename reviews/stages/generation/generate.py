"""The judge of ``generate`` stages."""

from __future__ import annotations

from typing import Any

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import ROW_CHARACTERS
from reviews.stages.generation.measure import judged_rows
from reviews.stages.generation.measure import read_samples as read
from specs.text import plain

__all__ = ["read", "shown"]


def shown(evidence: Evidence) -> list[dict[str, Any]]:
    """Return every sample, and whether it was accepted; errors as :func:`judged_rows`."""
    return [
        {
            "item": one.row.item,
            "prompt": plain(one.row.prompt, ROW_CHARACTERS),
            "completion": plain(one.row.completion, ROW_CHARACTERS),
            "truncated": one.row.truncated,
            "accepted": one.accepted,
        }
        for one in judged_rows(evidence)
    ]
