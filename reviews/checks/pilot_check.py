"""Is what was done at scale what was tried in the pilot?"""

from __future__ import annotations

from reviews.checks.definition import CheckOutcome, CheckRegistry
from reviews.evidence.evidence import Evidence
from specs.stages.base.metric import MetricSet
from specs.stages.base.stage import differing_parameters
from specs.system.errors import EvidenceMissing
from specs.trail.verdict import RequiredChange

CHECKS = CheckRegistry(lambda kind: kind.samples)


@CHECKS.add(
    "pilot.followed",
    "The parameters equal those of the accepted pilot",
    source="fifteen thousand texts written with settings that no pilot had tried",
)
def _check_pilot_parameters(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare what was granted with what the accepted attempt of the pilot was granted; sizes may differ."""
    name = evidence.stage.pilot
    if name is None:
        return CheckOutcome("NOT_APPLICABLE", "the stage names no pilot")
    arm = evidence.arms.get(name)
    if arm is None or not arm.parameters:
        raise EvidenceMissing(f"the pilot '{name}' has no accepted attempt with an order")
    texts = differing_parameters(evidence.require_parameters(), arm.parameters)
    if not texts:
        return CheckOutcome("PASS", f"the parameters are those of '{name}', sizes apart", 0.0)
    pairs = [(text, evidence.parameters.get(text), arm.parameters.get(text)) for text in texts]
    visible = tuple({"parameter": text, "here": ours, "pilot": theirs} for text, ours, theirs in pairs)
    message = "; ".join(f"{text} {ours} here, {theirs} in '{name}'" for text, ours, theirs in pairs)
    change = None
    movable = [(text, theirs) for text, _, theirs in pairs if text in evidence.stage.ranges]
    if len(movable) == len(pairs) == 1 and isinstance(movable[0][1], int | float):
        text, value = movable[0]
        change = RequiredChange(text=f"set {text} to {value:g}, as in '{name}'", parameter=text, value=value)
    return CheckOutcome("FAIL", f"not what the pilot tried: {message}", float(len(texts)), visible, change)
