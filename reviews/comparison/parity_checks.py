"""Do the arms differ in the checkpoint and in nothing else, and how do further arms and controls compare?"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from reviews.checks.definition import CheckLimit, CheckOutcome, CheckRegistry, manifest_of, need, need_exact, unless
from reviews.comparison.arms import compare_arms, describe_prompts, different_prompts, pair_controls
from reviews.comparison.paired_checks import list_differences
from reviews.evidence.evidence import Evidence
from reviews.evidence.subgroups import count_pairs, count_right
from reviews.evidence.weight_lineage import NAMED, measured_starts, trained_from, weights_before
from reviews.stages.evaluation.judged_answers import both_arms, both_sides, pair_answers
from specs.jobs.job_records import Manifest
from specs.session.design import Design
from specs.stages.base.kind import StageKind
from specs.stages.base.metric import MetricSet
from specs.system.errors import EvidenceMissing
from specs.system.exact import exact, holds

CHECKS = CheckRegistry(lambda kind: kind.arm, only_treatment=True)


def _baseline(evidence: Evidence) -> Manifest:
    if evidence.baseline_manifest is None:
        raise EvidenceMissing("the baseline has no accepted attempt with a manifest")
    return evidence.baseline_manifest


@CHECKS.add("parity.items", "Both arms answered the same items", source="arms on different items")
def _check_items(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    ours, theirs = manifest_of(evidence).inputs.get("items"), _baseline(evidence).inputs.get("items")
    if ours is None or ours != theirs:
        return CheckOutcome("FAIL", f"the treatment read {ours}, the baseline {theirs}", repairable=False)
    return CheckOutcome("PASS", f"both arms read {ours}", float(len(evidence.heldout)))


@CHECKS.add(
    "parity.settings", "Both arms were evaluated the same way", source="prompt format or decoding changed between arms"
)
def _check_settings(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    treatment, baseline = manifest_of(evidence), _baseline(evidence)
    compared: list[tuple[str, Any, Any]] = [
        ("granted parameters", evidence.parameters, evidence.baseline_parameters),
        ("effective settings", treatment.effective, baseline.effective),
        ("code", treatment.code, baseline.code),
        ("packages", treatment.packages, baseline.packages),
        ("threads", treatment.threads, baseline.threads),
        ("chat template", treatment.facts.get("chat_template"), baseline.facts.get("chat_template")),
        ("stop tokens", treatment.facts.get("stop_ids"), baseline.facts.get("stop_ids")),
        ("encoded prompt", treatment.facts.get("first_prompt_ids"), baseline.facts.get("first_prompt_ids")),
    ]
    differing = [
        {"what": what, "treatment": str(ours), "baseline": str(theirs)}
        for what, ours, theirs in compared
        if ours != theirs
    ]
    message = f"the arms differ in {', '.join(value['what'] for value in differing)}"
    return unless(differing, message, "same decoding, limits, prompt format, tokenizer, code, packages and threads")


@CHECKS.add(
    "parity.prompts",
    "Both arms read the same prompts",
    source="prompts of 22 tokens in one arm and 57 in the other: a chat template that reads the clock",
)
def _check_prompts(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare item by item the token ids that the arms read; witnesses derive them again from what was granted."""
    _baseline(evidence)
    differing = different_prompts(evidence, evidence.baseline_rows, evidence.outputs.get("rows"))
    if differing is None:
        return CheckOutcome("NOT_APPLICABLE", "rows of this kind hold no prompts")
    if not differing:
        return CheckOutcome("PASS", f"the same token ids for each of {len(evidence.heldout)} items", 0.0)
    rows = tuple(
        {"item": value.item, "treatment_tokens": value.after.tokens, "baseline_tokens": value.before.tokens}
        for value in differing
    )
    message = describe_prompts(differing)
    hint = "use one tokenizer and chat template for both arms, and a template that reads no clock"
    return CheckOutcome("FAIL", f"{message}; {hint}", float(len(differing)), rows, repairable=False)


BASELINE_SOURCE = "a baseline that a stage had made worse, so that the same treatment gained on it"


def judge_baseline(spec: Design) -> CheckOutcome:
    """Return whether the baseline is what the treatment started from, or the untouched model, by the spec alone.

    Another checkpoint of the session may be worse than both. It counts where the spec measures what it was made from
    as well, because ``parity.models`` can then compare the two.
    """
    arms = [spec.stage(name).inputs["model"] for name in (spec.analysis.treatment, spec.analysis.baseline)]
    (treatment, baseline), roots = arms, [trained_from(spec, reference)[-1] for reference in arms]
    if treatment not in NAMED and set(roots) <= set(NAMED) and roots[0] != roots[1]:
        message = f"the treatment {treatment} was trained from '{roots[0]}', the baseline {baseline} comes from"
        message += f" '{roots[1]}': the gain does not come from the training"
        return CheckOutcome("FAIL", message, repairable=False)
    if baseline in NAMED:
        return CheckOutcome("PASS", f"the baseline is '{baseline}', which no stage changed")
    if measured := measured_starts(spec):
        return CheckOutcome("PASS", f"'{measured[0]}' measures what the baseline {baseline} was made from")
    hint = f"add a stage like '{spec.analysis.baseline}' that reads '{roots[1]}'"
    if baseline in weights_before(spec, treatment):
        message = (
            f"the baseline {baseline} was made by a stage, and no stage measures whether it is worse than '{roots[1]}'"
        )
        return CheckOutcome("WARN", f"{message}: {hint}")
    message = f"the treatment {treatment} did not start from the baseline {baseline}"
    return CheckOutcome("FAIL", f"{message}: use what it started from, '{roots[0]}' for example, or {hint}")


@CHECKS.add(
    "parity.models", "The arms are different weights, and no stage made the baseline worse", source=BASELINE_SOURCE
)
def _check_models(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    """Compare the weights of the arms, where they come from, and the baseline with what it was made from."""
    ours, theirs = manifest_of(evidence).inputs.get("model"), _baseline(evidence).inputs.get("model")
    if ours == theirs:
        return CheckOutcome("FAIL", f"both arms evaluated the same weights {ours}", repairable=False)
    spec = evidence.resolved.spec
    judged = judge_baseline(spec)
    if judged.status != "PASS":
        return replace(judged, repairable=False)
    if spec.stage(spec.analysis.baseline).inputs["model"] not in NAMED:
        for name in measured_starts(spec):
            if name not in evidence.arms:
                raise EvidenceMissing(f"'{name}' has no accepted attempt")
            if why := _worn(evidence, metrics, name):
                return CheckOutcome("FAIL", why, repairable=False)
    return CheckOutcome("PASS", f"treatment {ours}, baseline {theirs}; {judged.detail}")


def _worn(evidence: Evidence, metrics: MetricSet | None, start: str) -> str:
    """Return in words how the baseline is worse than what it was made from; empty if the result does not rest on it.

    It is worse by the registered test, or the treatment is better than the baseline only, and not than the start.
    """
    analysis, rows = evidence.resolved.spec.analysis, evidence.arms[start].rows
    worn = count_pairs(pair_answers(both_sides(evidence, rows, evidence.baseline_rows)))
    if worn.lost <= worn.gained:
        return ""
    message = f"the baseline lost {worn.lost} items against '{start}' and gained {worn.gained} (p = {worn.p:.3g})"
    if holds(worn.p, "<", analysis.alpha):
        return f"{message}: a stage made it worse; compare with what was measured in '{start}'"
    gain = count_pairs(pair_answers(both_sides(evidence, rows, evidence.outputs.get("rows"))))
    is_claimed = holds(need_exact(metrics, analysis.p_metric), "<", analysis.alpha)
    if is_claimed and not (holds(gain.p, "<", analysis.alpha) and gain.gain >= exact(analysis.minimum_effect)):
        return f"{message}, and against '{start}' the treatment gains {float(gain.gain):+.3f}, p = {gain.p:.3g}"
    return ""


@CHECKS.add(
    "parity.truncation",
    "The gain does not come from the length limit",
    source="an evaluation length cap produced an '18 % lift'",
    limits=(CheckLimit("<=", "thresholds.learned_stops"),),
)
def _check_truncation(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    """Repeat the registered test on the items that neither arm truncated: a gain made by the cap vanishes there.

    If the spec registers that the model is to learn to stop, answers that only the baseline has cut off stay in, up to
    the registered fraction: then ending in time is part of what is measured.
    """
    pairs, analysis = list(both_arms(evidence)), evidence.resolved.spec.analysis
    stopped = sum(then.truncated and not now.truncated for then, now in pairs)
    share = Fraction(stopped, len(pairs)) if pairs else Fraction(0)
    learned = stopped > 0 and holds(share, "<=", evidence.resolved.spec.thresholds.learned_stops)
    whole = count_pairs(
        pair_answers((then, now) for then, now in pairs if not now.truncated and (learned or not then.truncated))
    )
    cut = [sum(value.truncated for value in arm) / len(arm) for arm in zip(*pairs, strict=True)]
    rates = f"{cut[0]:.3f} of the baseline's answers were cut off, {cut[1]:.3f} of the treatment's"
    if learned:
        rates += f"; {stopped} answers that end in time now count as learned, as registered"
    remaining = "answers that are whole now" if learned else "whole pairs"
    detail = f"{rates}; on the {whole.n} {remaining} {whole.gained} gained, {whole.lost} lost, p = {whole.p:.3g}"
    significant = holds(need_exact(metrics, analysis.p_metric), "<", analysis.alpha)
    if significant and (not holds(whole.p, "<", analysis.alpha) or whole.gain <= 0):
        return CheckOutcome("FAIL", f"{detail}: the gain does not hold without the cut-off answers", whole.p)
    return CheckOutcome("PASS", detail, whole.p)


ARMS_SOURCE = "a gain over the start that another way of training, measured otherwise or not at all, would have had too"


@CHECKS.add("arms.alike", "Further arms were measured as the treatment was, on other weights", source=ARMS_SOURCE)
def _check_alike(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare each arm with the treatment: the same items, prompts, settings and code, and other weights."""
    arms = evidence.resolved.spec.analysis.arms
    if not arms:
        return CheckOutcome("NOT_APPLICABLE", "no further arm is registered")
    ours, parts = manifest_of(evidence), list[str]()
    for arm in arms:
        evaluated = evidence.arms.get(arm.stage)
        if evaluated is None or evaluated.manifest is None:
            raise EvidenceMissing(f"the arm '{arm.name}' has no accepted attempt with a manifest")
        theirs = evaluated.manifest
        differing = list_differences(evidence, evaluated, theirs)
        if differing:
            parts.append(f"'{arm.name}' differs from the treatment in {', '.join(differing)}")
        if ours.inputs.get("model") == theirs.inputs.get("model"):
            parts.append(f"'{arm.name}' evaluated the treatment's weights")
    if parts:
        return CheckOutcome("FAIL", "; ".join(parts), float(len(parts)), repairable=False)
    return CheckOutcome("PASS", f"{len(arms)} arms differ from the treatment in the weights alone", 0.0)


@CHECKS.add("arms.compared", "The treatment is better than the arms it must beat", source=ARMS_SOURCE, blocking=False)
def _check_compared(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare all arms in one table, adjusted together (Holm); the registered hypothesis decides."""
    table, alpha = compare_arms(evidence), evidence.resolved.spec.analysis.alpha
    if not table:
        return CheckOutcome("NOT_APPLICABLE", "no further arm is registered")
    rows = tuple(row.as_json(alpha) for row in table)
    missed = [row for row in table if row.must_be_beaten and not row.is_beaten(alpha)]
    detail = "; ".join(
        f"'{row.name}' {count_right([row.right])}/{row.n}, the treatment leads by {float(row.lead.gain):+.3f}, "
        f"adjusted p = {row.lead_p:.3g}"
        for row in table
        if row.lead is not None
    )
    if missed:
        names = ", ".join(f"'{row.name}'" for row in missed)
        return CheckOutcome("WARN", f"not shown to be better than {names}: {detail}", float(len(missed)), rows)
    return CheckOutcome("PASS", detail, 0.0, rows)


def _has_controls(kind: StageKind) -> bool:
    return kind.arm is not None and bool(kind.arm.control)


CONTROL_SOURCE = "a gain in conversations that was there without their history too"


@CHECKS.add(
    "controls.alike", "Controls differ from the arms in the history alone", source=CONTROL_SOURCE, kinds=_has_controls
)
def _check_controls_alike(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
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


@CHECKS.add(
    "controls.excess",
    "The gain is larger than under the controls",
    source=CONTROL_SOURCE,
    blocking=False,
    kinds=_has_controls,
)
def _check_excess(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
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
