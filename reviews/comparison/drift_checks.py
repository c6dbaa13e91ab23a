"""Can the trained model still do what the untrained one could? A non-inferiority test over the same items."""

from __future__ import annotations

from reviews.checks.definition import Checks, Found
from reviews.comparison.paired_tests import outcomes
from reviews.comparison.subgroups import Pair, counted
from reviews.evidence.evidence import Evidence
from reviews.stages.judge import Change, judge_of
from reviews.statistics.paired_binary import is_non_inferior
from specs.errors import EvidenceMissing
from specs.stages.metric import MetricSet
from specs.stages.registry import kind_of

CHECKS = Checks(lambda kind: kind.outcomes)

SOURCE = "training on a narrow task that takes others away; non-inferiority, ICH E9 section 3.3.2"


@CHECKS.add("drift.kept", "What must not fall did not fall", source=SOURCE)
def _drift(evidence: Evidence, _: MetricSet | None) -> Found:
    plan = evidence.resolved.spec.evaluation
    registered = [one for one in (plan.drift if plan else ()) if one.after == evidence.stage.name]
    if not registered:
        return Found("NOT_APPLICABLE", "nothing is registered that must not fall here")
    told: list[str] = []
    fallen: list[str] = []
    worst = 1.0
    for one in registered:
        require_alike(evidence, one.before)
        change = _change(evidence, one.before)
        worst = min(worst, change.value)
        low, high = change.interval
        told.append(f"against '{one.before}': {change.told} [{low:+.3f}, {high:+.3f}], margin {one.margin:g}")
        if not is_non_inferior(change.interval, one.margin):
            fallen.append(one.before)
    detail = "; ".join(told)
    if fallen:
        return Found("FAIL", f"{detail}: it may have lost more than the margin", worst)
    return Found("PASS", detail, worst)


def require_alike(evidence: Evidence, before: str) -> None:
    """Refuse to compare stages that did not do the same: other items, settings, code or packages.

    Raises:
        EvidenceMissing: they did not, or one of them left no manifest.
    """
    arm, ours = evidence.arms.get(before), evidence.manifest
    if arm is None or arm.manifest is None:
        raise EvidenceMissing(f"'{before}' has no accepted attempt with a manifest")
    if ours is None:
        raise EvidenceMissing("the job left no manifest")
    compared = (
        ("items", ours.inputs.get("items"), arm.manifest.inputs.get("items")),
        ("parameters", evidence.parameters, arm.parameters),
        ("settings", ours.effective, arm.manifest.effective),
        ("code", ours.code, arm.manifest.code),
        ("packages", ours.packages, arm.manifest.packages),
    )
    differing = [what for what, one, other in compared if one != other]
    if differing:
        raise EvidenceMissing(f"'{before}' had other {', '.join(differing)}: it cannot be compared")


def _change(evidence: Evidence, before: str) -> Change:
    if change := judge_of(kind_of(evidence.stage)).change:
        return change(evidence, before)
    paths = evidence.arms[before].rows, evidence.outputs.get("rows")
    passed = [outcomes(evidence, path, "binary") for path in paths]
    part = counted(Pair("", "", bool(was), bool(now)) for was, now in zip(*passed, strict=True))
    value = float(part.gain)
    return Change(value, part.interval, f"{value:+.3f} on {part.n} items, {part.gained} gained, {part.lost} lost")
