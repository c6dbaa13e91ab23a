"""The judge of ``critique_responses`` stages."""

from __future__ import annotations

from reviews.evidence.evidence import Evidence
from reviews.evidence.measured_value import Measured
from reviews.evidence.row_lines import Part
from reviews.stages.critique.measure import measure_critiques
from reviews.stages.critique.trace import critiques


def measure(evidence: Evidence) -> dict[str, Measured]:
    """Return its metrics; errors as :func:`measure_critiques`."""
    return measure_critiques(evidence, "responses")


def trace(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    """Return the lines of a metric; errors as :func:`critiques`."""
    return critiques(evidence, metric.removeprefix("responses_"))
