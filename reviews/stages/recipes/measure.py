"""The measurer of a builder's scripts."""

from __future__ import annotations

from reviews.evidence.evidence import Evidence
from reviews.evidence.measured_value import Measured
from reviews.evidence.row_reader import read_objects


def measure_recipe(evidence: Evidence) -> dict[str, Measured]:
    """Return nothing: what a builder's code computes is a claim."""
    read_objects(evidence.outputs.get("rows"), "recipe rows")
    return {}
