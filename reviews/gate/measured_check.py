"""Could the raw rows of the job be measured at all?

Apart from the other checks of a job: it is the only one that measures, so that the checks of a stage kind need not know
how the metrics of every kind are computed.
"""

from __future__ import annotations

from reviews.checks.definition import ALL, Check, Found
from reviews.evidence.evidence import Evidence
from reviews.gate.measurer import measure
from specs.errors import EvidenceMissing
from specs.stages.metric import MetricSet


def _measured(evidence: Evidence, metrics: MetricSet | None) -> Found:
    """Close the gate of rows that cannot be measured, whatever criteria and checks the stage has beside this one."""
    if metrics is None:
        # Says why, where it still is so.
        measure(evidence)
        raise EvidenceMissing("the rows were not measured")
    return Found("PASS", f"{len(metrics.metrics)} metrics were computed from the raw rows", float(len(metrics.metrics)))


CHECKS = (
    Check(
        "jobs.measured",
        "The raw rows could be measured",
        ALL,
        _measured,
        "a gate without a criterion that opened on rows nobody could read",
    ),
)
