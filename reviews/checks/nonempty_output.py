"""Is there anything left for later stages? A stage that kept none of its data opens no gate."""

from __future__ import annotations

from reviews.checks.definition import Checks, Found, need
from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import read_rows
from specs.stages.base.metric import MetricSet
from specs.stages.registry import kind_of

CHECKS = Checks(lambda kind: kind.kept)


@CHECKS.add(
    "health.kept",
    "Something was kept",
    source="gates without a number: 30 examples where 100 to 200 were asked for, and scaled to 15,000 anyway",
)
def _something(evidence: Evidence, metrics: MetricSet | None) -> Found:
    """Count what later stages will read; instructions that are held-out prompts are not among it."""
    declared = kind_of(evidence.stage).kept
    if declared is None:
        return Found("NOT_APPLICABLE", "nothing continues with what the stage leaves")
    output = declared.output
    count = len(read_rows(evidence.outputs.get(output), declared.row, output, may_be_empty=True))
    remaining = min(count, int(need(metrics, declared.left))) if declared.left else count
    message = f"{count} {output} were kept" + (f", {remaining} of them are handed on" if remaining < count else "")
    if remaining > 0:
        return Found("PASS", message, float(remaining))
    return Found("FAIL", f"{message}: nothing is left for later stages", 0.0)
