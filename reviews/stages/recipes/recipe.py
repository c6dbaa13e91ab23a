"""The judge of ``recipe`` stages."""

from __future__ import annotations

import json
from typing import Any

from reviews.evidence.evidence import Evidence
from reviews.evidence.measured_value import Measured
from reviews.evidence.row_reader import ROW_CHARACTERS, read_objects
from specs.text import plain


def measure(evidence: Evidence) -> dict[str, Measured]:
    """Return nothing, of rows that can be read: what a builder's code computes is a claim."""
    read_objects(evidence.outputs.get("rows"), "recipe rows")
    return {}


def shown(evidence: Evidence) -> list[dict[str, Any]]:
    """Return a recipe's rows as text: their names and values are the builder's own."""
    rows = read_objects(evidence.outputs.get("rows"), "recipe rows")
    return [{"claimed": plain(json.dumps(row, ensure_ascii=False), ROW_CHARACTERS)} for row in rows]
