"""The judge of ``recipe`` stages."""

from __future__ import annotations

import json
from typing import Any

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import ROW_CHARACTERS, read_objects
from reviews.stages.recipes.measure import measure_recipe as measure
from specs.text import plain

__all__ = ["measure", "shown"]


def shown(evidence: Evidence) -> list[dict[str, Any]]:
    """Return a recipe's rows as text: their names and values are the builder's own."""
    rows = read_objects(evidence.outputs.get("rows"), "recipe rows")
    return [{"claimed": plain(json.dumps(row, ensure_ascii=False), ROW_CHARACTERS)} for row in rows]
