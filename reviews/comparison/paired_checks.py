"""Stages compared item by item beside the analysis: what must not fall, and the paired tests that a spec registers."""

from __future__ import annotations

from reviews.checks.definition import Checks, Found, manifest_of
from reviews.comparison.paired_tests import carried_out, is_shown, outcomes, power_of
from reviews.comparison.subgroups import Pair, counted
from reviews.evidence.evidence import Evidence
from reviews.stages.judge import Change, judge_of
from reviews.statistics.mcnemar import benjamini_hochberg
from reviews.statistics.paired_binary import is_non_inferior
from specs.errors import EvidenceMissing
from specs.exact import holds
from specs.session.evaluation_plan import PairedTest
from specs.session.session_spec import SessionSpec
from specs.stages.artifacts import Item
from specs.stages.metric import MetricSet
from specs.stages.registry import kind_of

CHECKS = Checks(lambda kind: kind.outcomes)

DRIFT_SOURCE = "training on a narrow task that takes others away; non-inferiority, ICH E9 section 3.3.2"
SOURCE = "a test that was chosen after its data were seen"


@CHECKS.add("drift.kept", "What must not fall did not fall", source=DRIFT_SOURCE)
def _drift(evidence: Evidence, _: MetricSet | None) -> Found:
    """Test whether the trained model still can do what the untrained one could, item by item: non-inferiority."""
    plan = evidence.resolved.spec.evaluation
    registered = [one for one in (plan.drift if plan else ()) if one.after == evidence.stage.name]
    if not registered:
        return Found("NOT_APPLICABLE", "nothing is registered that must not fall here")
    parts: list[str] = []
    fallen: list[str] = []
    worst = 1.0
    for one in registered:
        require_alike(evidence, one.before)
        change = _change(evidence, one.before)
        worst = min(worst, change.value)
        low, high = change.interval
        parts.append(f"against '{one.before}': {change.told} [{low:+.3f}, {high:+.3f}], margin {one.margin:g}")
        if not is_non_inferior(change.interval, one.margin):
            fallen.append(one.before)
    detail = "; ".join(parts)
    if fallen:
        return Found("FAIL", f"{detail}: it may have lost more than the margin", worst)
    return Found("PASS", detail, worst)


def require_alike(evidence: Evidence, before: str) -> None:
    """Refuse to compare stages that did not do the same: other items, settings, code or packages.

    Raises:
        EvidenceMissing: they did not, or one of them left no manifest.
    """
    arm = evidence.arms.get(before)
    if arm is None or arm.manifest is None:
        raise EvidenceMissing(f"'{before}' has no accepted attempt with a manifest")
    ours = manifest_of(evidence)
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


def registered_for(spec: SessionSpec, stage: str) -> tuple[PairedTest, ...]:
    """Return the paired tests whose second stage this is: they are adjusted together."""
    plan = spec.evaluation
    return tuple(one for one in (plan.paired if plan else ()) if one.after == stage)


def design_of(spec: SessionSpec, heldout: int, data: dict[str, tuple[Item, ...]]) -> Found:
    """Compute the power of every registered paired test whose items are registered too."""
    plan = spec.evaluation
    if plan is None or not plan.paired:
        return Found("PASS", "no paired test is registered beside the analysis")
    parts: list[str] = []
    short: list[bool] = []
    for one in plan.paired:
        owner, _, name = spec.stage(one.after).inputs["items"].partition(".")
        n = heldout if owner == "heldout" else len(data[name]) if owner == "data" else None
        if n is None:
            parts.append(f"'{one.after}': its items come from '{owner}', so their number is not known yet")
            continue
        found = power_of(one, n, len(registered_for(spec, one.after)))
        parts.append(found.told)
        if not found.enough:
            short.append(one.decides)
    detail = "; ".join(parts)
    if not short:
        return Found("PASS", detail)
    return Found("FAIL" if any(short) else "WARN", detail, float(len(short)), repairable=False)


@CHECKS.add("paired.registered", "The paired tests registered beside the analysis", source=SOURCE)
def _registered(evidence: Evidence, _: MetricSet | None) -> Found:
    """Carry out every paired test of this stage, adjusted together; a deciding test closes the gate unless shown."""
    tests = registered_for(evidence.resolved.spec, evidence.stage.name)
    if not tests:
        return Found("NOT_APPLICABLE", "no paired test is registered for this stage")
    for one in tests:
        require_alike(evidence, one.before)
    now = evidence.outputs.get("rows")
    found = [
        carried_out(
            one,
            outcomes(evidence, evidence.arms[one.before].rows, one.outcome),
            outcomes(evidence, now, one.outcome),
        )
        for one in tests
    ]
    p_values = benjamini_hochberg([one.p for one in found])
    shown = [is_shown(one, p) for one, p in zip(found, p_values, strict=True)]
    fallen = [holds(p, "<", one.test.alpha) and one.effect < 0 for one, p in zip(found, p_values, strict=True)]
    detail = "; ".join(
        f"against '{one.test.before}', {one.told}, adjusted p = {p:.3g}: "
        + ("shown" if yes else "it fell" if down else "not shown")
        + f" (registered: p < {one.test.alpha:g}, effect >= {one.test.minimum_effect:g})"
        for one, p, yes, down in zip(found, p_values, shown, fallen, strict=True)
    )
    missed = [one.test for one, yes in zip(found, shown, strict=True) if not yes and one.test.decides]
    status = "FAIL" if missed else "WARN" if any(fallen) else "PASS"
    return Found(status, detail, float(sum(shown)))
