"""What the checks and the measurer make of evidence."""

from __future__ import annotations

from reviews.evidence.evidence import Evidence
from reviews.gate.check_list import run_checks
from reviews.gate.measurer import measure
from specs.system.errors import EvidenceMissing
from specs.trail.verdict import CheckResult


def results_of(evidence: Evidence) -> dict[str, CheckResult]:
    """Return the result of every check by its id; checks that need a metric get none where evidence is missing."""
    try:
        metrics = measure(evidence)
    except EvidenceMissing:
        metrics = None
    return {result.id: result for result in run_checks(evidence, metrics)}


def values_of(evidence: Evidence) -> dict[str, float]:
    """Return the value of every metric by its id."""
    return {id: metric.value for id, metric in measure(evidence).metrics.items()}
