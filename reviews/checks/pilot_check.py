"""Is what was done at scale what was tried in the pilot?"""

from __future__ import annotations

from reviews.checks.definition import Checks, Found
from reviews.evidence.evidence import Evidence
from specs.errors import EvidenceMissing
from specs.session.lint.pilot_rules import differing
from specs.stages.metric import MetricSet
from specs.trail.verdict import RequiredChange

CHECKS = Checks(lambda kind: kind.samples)


@CHECKS.add(
    "pilot.followed",
    "The parameters are those that the pilot was accepted with",
    source="fifteen thousand texts written with settings that no pilot had tried",
)
def _followed(evidence: Evidence, _: MetricSet | None) -> Found:
    """Compare what was granted with what the accepted attempt of the pilot was granted; sizes may differ."""
    name = evidence.stage.pilot
    if name is None:
        return Found("NOT_APPLICABLE", "the stage names no pilot")
    arm = evidence.arms.get(name)
    if arm is None or not arm.parameters:
        raise EvidenceMissing(f"the pilot '{name}' has no accepted attempt with an order")
    found = differing(evidence.ordered(), arm.parameters)
    if not found:
        return Found("PASS", f"the parameters are those of '{name}', sizes apart", 0.0)
    pairs = [(one, evidence.parameters.get(one), arm.parameters.get(one)) for one in found]
    shown = tuple({"parameter": one, "here": ours, "pilot": theirs} for one, ours, theirs in pairs)
    message = "; ".join(f"{one} {ours} here, {theirs} in '{name}'" for one, ours, theirs in pairs)
    change = None
    movable = [(one, theirs) for one, _, theirs in pairs if one in evidence.stage.ranges]
    if len(movable) == len(pairs) == 1 and isinstance(movable[0][1], int | float):
        one, value = movable[0]
        change = RequiredChange(text=f"set {one} to {value:g}, as in '{name}'", parameter=one, value=value)
    return Found("FAIL", f"not what the pilot tried: {message}", float(len(found)), shown, change)
