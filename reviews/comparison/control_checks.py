"""Do the registered controls of a comparison of conversations differ from its arms in the history alone?"""

from __future__ import annotations

from typing import Any

from reviews.checks.definition import CheckOutcome, CheckRegistry, manifest_of, need
from reviews.comparison.arms import different_prompts, pair_controls
from reviews.evidence.evidence import Evidence
from reviews.evidence.subgroups import count_pairs
from specs.jobs.job_records import Manifest
from specs.stages.base.metric import MetricSet
from specs.system.errors import EvidenceMissing
from specs.system.exact import holds

CHECKS = CheckRegistry(lambda kind: kind.arm and kind.arm.control, only_treatment=True)

SOURCE = "a gain in conversations that was there without their history too"


@CHECKS.add("controls.alike", "Controls differ from the arms in the history alone", source=SOURCE)
def _alike(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare each control with its arm: the same weights, items, code and settings, and another history."""
    controls = evidence.resolved.spec.analysis.controls
    if not controls:
        return CheckOutcome("NOT_APPLICABLE", "no control is registered")
    ours, theirs = manifest_of(evidence), evidence.baseline_manifest
    if theirs is None:
        raise EvidenceMissing("the baseline has no accepted attempt with a manifest")
    parts: list[str] = []
    for control in controls:
        sides = ((control.before, theirs, evidence.baseline_parameters), (control.after, ours, evidence.parameters))
        for name, manifest, parameters in sides:
            arm = evidence.arms.get(name)
            if arm is None or arm.manifest is None:
                raise EvidenceMissing(f"the control '{name}' has no accepted attempt with a manifest")
            differing = _differing(arm.manifest, arm.parameters, manifest, parameters)
            own = evidence.baseline_rows if name == control.before else evidence.outputs.get("rows")
            if different_prompts(evidence, own, arm.rows):
                differing.append("prompts of first turns")
            if differing:
                parts.append(f"'{name}' differs from its arm in {', '.join(differing)}")
    if parts:
        return CheckOutcome("FAIL", "; ".join(parts), float(len(parts)), repairable=False)
    return CheckOutcome("PASS", f"{2 * len(controls)} stages differ from their arms in the history alone", 0.0)


def _differing(value: Manifest, granted: dict[str, Any], arm: Manifest, requests: dict[str, Any]) -> list[str]:
    def without(settings: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in settings.items() if name != "history"}

    compared = (
        ("weights", value.inputs.get("model"), arm.inputs.get("model")),
        ("items", value.inputs.get("items"), arm.inputs.get("items")),
        ("parameters", without(granted), without(requests)),
        ("settings", without(value.effective), without(arm.effective)),
        ("code", value.code, arm.code),
        ("packages", value.packages, arm.packages),
        ("threads", value.threads, arm.threads),
    )
    return [what for what, first, second in compared if first != second]


@CHECKS.add("controls.excess", "The gain is larger than under the controls", source=SOURCE, blocking=False)
def _excess(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    """Compare the gain under each control with the gain of the arms; the registered hypothesis decides."""
    controls = pair_controls(evidence)
    if not controls:
        return CheckOutcome("NOT_APPLICABLE", "no control is registered")
    excess, p = need(metrics, "control_excess"), need(metrics, "control_excess_p")
    parts = [f"the arms gain {need(metrics, 'accuracy_gain'):+.3f}"]
    for name, pairs in controls.items():
        _, n, gained, lost, *_ = count_pairs(pairs)
        before, after = (sum(getattr(pair, side) for pair in pairs) / n for side in ("before", "after"))
        parts.append(f"{name} {before:.3f} -> {after:.3f}, {(gained - lost) / n:+.3f} ({gained} gained, {lost} lost)")
    detail = f"{'; '.join(parts)}; beyond the worst of them {excess:+.3f}, p = {p:.3g}"
    if holds(p, "<", evidence.resolved.spec.analysis.alpha) and excess > 0:
        return CheckOutcome("PASS", detail, excess)
    return CheckOutcome("WARN", f"{detail}: this does not show that the gain comes from memory", excess)
