"""Is there anything left for later stages? A stage that kept none of its data opens no gate."""

from __future__ import annotations

from reviews.checks.definition import CheckOutcome, CheckRegistry, need
from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import read_rows
from specs.stages.base.metric import MetricSet
from specs.stages.registry import kind_of

CHECKS = CheckRegistry(lambda kind: kind.required_output)


@CHECKS.add(
    "health.kept",
    "Something was kept",
    source="gates without a number: 30 examples where 100 to 200 were asked for, and scaled to 15,000 anyway",
)
def _something(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    """Count what later stages will read; instructions that are held-out prompts are not among it."""
    declared = kind_of(evidence.stage).required_output
    if declared is None:
        return CheckOutcome("NOT_APPLICABLE", "nothing continues with what the stage leaves")
    output = declared.output
    count = len(read_rows(evidence.outputs.get(output), declared.row, output, may_be_empty=True))
    remaining = min(count, int(need(metrics, declared.count_metric))) if declared.count_metric else count
    message = f"{count} {output} were kept" + (f", {remaining} of them are handed on" if remaining < count else "")
    if remaining > 0:
        return CheckOutcome("PASS", message, float(remaining))
    return CheckOutcome("FAIL", f"{message}: nothing is left for later stages", 0.0)
