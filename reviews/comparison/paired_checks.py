"""The paired tests that a spec registers beside its analysis: carried out as registered, and able to find something."""

from __future__ import annotations

from reviews.checks.definition import Checks, Found
from reviews.comparison.drift_checks import require_alike
from reviews.comparison.paired_tests import carried_out, is_shown, outcomes, power_of
from reviews.evidence.evidence import Evidence
from reviews.statistics.mcnemar import benjamini_hochberg
from specs.exact import holds
from specs.session.evaluation_plan import PairedTest
from specs.session.session_spec import SessionSpec
from specs.stages.artifacts import Item
from specs.stages.metric import MetricSet

CHECKS = Checks(lambda kind: kind.outcomes)

SOURCE = "a test that was chosen after its data were seen"


def registered_for(spec: SessionSpec, stage: str) -> tuple[PairedTest, ...]:
    """Return the paired tests whose second stage this is: they are adjusted together."""
    plan = spec.evaluation
    return tuple(one for one in (plan.paired if plan else ()) if one.after == stage)


def design_of(spec: SessionSpec, heldout: int, data: dict[str, tuple[Item, ...]]) -> Found:
    """Compute the power of every registered paired test whose items are registered too."""
    plan = spec.evaluation
    if plan is None or not plan.paired:
        return Found("PASS", "no paired test is registered beside the analysis")
    told: list[str] = []
    short: list[bool] = []
    for one in plan.paired:
        owner, _, name = spec.stage(one.after).inputs["items"].partition(".")
        n = heldout if owner == "heldout" else len(data[name]) if owner == "data" else None
        if n is None:
            told.append(f"'{one.after}': its items come from '{owner}', so their number is not known yet")
            continue
        found = power_of(one, n, len(registered_for(spec, one.after)))
        told.append(found.told)
        if not found.enough:
            short.append(one.decides)
    detail = "; ".join(told)
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
