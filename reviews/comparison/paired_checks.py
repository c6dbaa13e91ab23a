"""Stages compared item by item next to the analysis: what must not fall, and the paired tests that a spec registers."""

from __future__ import annotations

from reviews.checks.definition import CheckOutcome, CheckRegistry, manifest_of
from reviews.comparison.arms import describe_prompts, different_prompts
from reviews.comparison.paired_tests import carried_out, is_shown, outcomes, power_of
from reviews.evidence.evidence import ArmEvidence, Evidence
from reviews.evidence.subgroups import ArmPair, count_pairs
from reviews.stages.evaluation.judged_answers import both_sides, pair_answers
from reviews.stages.judge import EffectEstimate, judge_of
from reviews.statistics.mcnemar import benjamini_hochberg
from reviews.statistics.paired_binary import is_non_inferior
from specs.jobs.job_records import Manifest
from specs.session.design import Design
from specs.session.evaluation_plan import PairedTest
from specs.stages.base.artifacts import Item
from specs.stages.base.metric import MetricSet
from specs.stages.registry import kind_of
from specs.system.errors import EvidenceMissing
from specs.system.exact import holds

CHECKS = CheckRegistry(lambda kind: kind.outcomes)

DRIFT_SOURCE = "training on a narrow task that takes others away; non-inferiority, ICH E9 section 3.3.2"
SOURCE = "a test that was chosen after its data were seen"


@CHECKS.add("drift.kept", "No protected capability fell", source=DRIFT_SOURCE)
def _check_kept(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Test whether the trained model still can do what the untrained one could, item by item: non-inferiority."""
    plan = evidence.resolved.spec.evaluation
    registered = [drift for drift in (plan.drift if plan else ()) if drift.after == evidence.stage.name]
    if not registered:
        return CheckOutcome("NOT_APPLICABLE", "no drift limit is registered here")
    parts: list[str] = []
    fallen: list[str] = []
    worst = 1.0
    for drift in registered:
        require_alike(evidence, drift.before)
        change = _change(evidence, drift.before)
        worst = min(worst, change.value)
        low, high = change.interval
        parts.append(
            f"against '{drift.before}': {change.description} [{low:+.3f}, {high:+.3f}], margin {drift.margin:g}"
        )
        if not is_non_inferior(change.interval, drift.margin):
            fallen.append(drift.before)
    detail = "; ".join(parts)
    if fallen:
        return CheckOutcome("FAIL", f"{detail}: it may have lost more than the margin", worst)
    return CheckOutcome("PASS", detail, worst)


def require_alike(evidence: Evidence, before: str) -> None:
    """Refuse to compare stages that did not do the same: other items, prompts, settings, code, packages or precision.

    Raises:
        EvidenceMissing: they did not, or one of them left no manifest.
    """
    arm = evidence.arms.get(before)
    if arm is None or arm.manifest is None:
        raise EvidenceMissing(f"'{before}' has no accepted attempt with a manifest")
    if differing := list_differences(evidence, arm, arm.manifest):
        raise EvidenceMissing(f"'{before}' had other {', '.join(differing)}, so it cannot be compared")


def list_differences(evidence: Evidence, arm: ArmEvidence, theirs: Manifest) -> list[str]:
    """Return what another stage, whose manifest is ``theirs``, did otherwise than this one, but for the weights.

    Raises:
        EvidenceMissing: a row does not state what the model read.
    """
    ours = manifest_of(evidence)
    compared = (
        ("items", ours.inputs.get("items"), theirs.inputs.get("items")),
        ("parameters", evidence.parameters, arm.parameters),
        ("settings", ours.effective, theirs.effective),
        ("code", ours.code, theirs.code),
        ("packages", ours.packages, theirs.packages),
        ("threads", ours.threads, theirs.threads),
        ("chat template", ours.facts.get("chat_template"), theirs.facts.get("chat_template")),
        ("stop tokens", ours.facts.get("stop_ids"), theirs.facts.get("stop_ids")),
        ("device or precision", (ours.device, ours.dtype), (theirs.device, theirs.dtype)),
    )
    differing = [what for what, digest, other in compared if digest != other]
    if not differing and (prompts := different_prompts(evidence, arm.rows, evidence.outputs.get("rows"))):
        return [f"prompts ({describe_prompts(prompts)})"]
    return differing


def _change(evidence: Evidence, before: str) -> EffectEstimate:
    if change := judge_of(kind_of(evidence.stage)).change:
        return change(evidence, before)
    paths = evidence.arms[before].rows, evidence.outputs.get("rows")
    if kind_of(evidence.stage).arm:
        part = count_pairs(pair_answers(both_sides(evidence, *paths)))
    else:
        passed = [outcomes(evidence, path, "binary") for path in paths]
        part = count_pairs(ArmPair("", "", bool(was), bool(now)) for was, now in zip(*passed, strict=True))
    value = float(part.gain)
    return EffectEstimate(
        value, part.interval, f"{value:+.3f} on {part.n} items, {part.gained} gained, {part.lost} lost"
    )


def registered_for(spec: Design, stage: str) -> tuple[PairedTest, ...]:
    """Return the paired tests whose second stage this is: they are adjusted together."""
    plan = spec.evaluation
    return tuple(paired_test for paired_test in (plan.paired if plan else ()) if paired_test.after == stage)


def design_of(spec: Design, heldout: int, data: dict[str, tuple[Item, ...]]) -> CheckOutcome:
    """Compute the power of every registered paired test whose items are registered too."""
    plan = spec.evaluation
    if plan is None or not plan.paired:
        return CheckOutcome("PASS", "no paired test is registered next to the analysis")
    parts: list[str] = []
    short: list[bool] = []
    for paired_test in plan.paired:
        owner, _, name = spec.stage(paired_test.after).inputs["items"].partition(".")
        n = heldout if owner == "heldout" else len(data[name]) if owner == "data" else None
        if n is None:
            parts.append(f"'{paired_test.after}': its items come from '{owner}', so their number is not known yet")
            continue
        power = power_of(paired_test, n, len(registered_for(spec, paired_test.after)))
        parts.append(power.description)
        if not power.enough:
            short.append(paired_test.decides)
    detail = "; ".join(parts)
    if not short:
        return CheckOutcome("PASS", detail)
    return CheckOutcome("FAIL" if any(short) else "WARN", detail, float(len(short)), repairable=False)


@CHECKS.add("paired.registered", "The registered paired tests reach their effects", source=SOURCE)
def _check_registered_tests(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Carry out every paired test of this stage, adjusted together; a deciding test closes the gate unless shown."""
    tests = registered_for(evidence.resolved.spec, evidence.stage.name)
    if not tests:
        return CheckOutcome("NOT_APPLICABLE", "no paired test is registered for this stage")
    for test in tests:
        require_alike(evidence, test.before)
    now = evidence.outputs.get("rows")
    results = [
        carried_out(
            test,
            outcomes(evidence, evidence.arms[test.before].rows, test.outcome),
            outcomes(evidence, now, test.outcome),
        )
        for test in tests
    ]
    p_values = benjamini_hochberg([value.p for value in results])
    flags = [is_shown(value, p) for value, p in zip(results, p_values, strict=True)]
    fallen = [holds(p, "<", value.test.alpha) and value.effect < 0 for value, p in zip(results, p_values, strict=True)]
    detail = "; ".join(
        f"against '{value.test.before}', {value.description}, adjusted p = {p:.3g}: "
        + ("shown" if yes else "it fell" if down else "not shown")
        + f" (registered: p < {value.test.alpha:g}, effect >= {value.test.minimum_effect:g})"
        for value, p, yes, down in zip(results, p_values, flags, fallen, strict=True)
    )
    missed = [value.test for value, yes in zip(results, flags, strict=True) if not yes and value.test.decides]
    status = "FAIL" if missed else "WARN" if any(fallen) else "PASS"
    return CheckOutcome(status, detail, float(sum(flags)))
