"""The second split: does the gain show on items of another kind or origin, which nothing was trained or chosen on?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from reviews.checks.definition import CheckOutcome, CheckRegistry, manifest_of, require_metric
from reviews.checks.leakage_checks import overlap_of, question_text_of, repeats_of
from reviews.comparison.arms import different_prompts
from reviews.comparison.paired_checks import list_differences
from reviews.comparison.power_checks import design_power
from reviews.evidence.evidence import ArmEvidence, Evidence
from reviews.evidence.measured_value import MeasuredValue
from reviews.evidence.subgroups import ArmPair, count_pairs
from reviews.stages.evaluation.judged_answers import both_sides, pair_answers
from specs.session.design import Analysis, Design
from specs.stages.base.artifacts import Item
from specs.stages.base.metric import MetricSet
from specs.system.errors import EvidenceMissing
from specs.system.exact import holds

CHECKS = CheckRegistry(lambda kind: kind.arm, only_treatment=True)
TRANSFER_METRICS = ("transfer_gain", "transfer_p")
SOURCE = "a gain on items like the training data, and no gain on items of another origin"


def list_transfer_stages(analysis: Analysis) -> tuple[str, ...]:
    """Return the two stages that answer the transfer split; none where none is registered."""
    return (analysis.transfer.before, analysis.transfer.after) if analysis.transfer else ()


def design_of(spec: Design, heldout: Sequence[Item], data: Mapping[str, tuple[Item, ...]]) -> CheckOutcome:
    """Look for items that repeat each other or held-out ones, and compute the power of the test on the others."""
    transfer = spec.analysis.transfer
    if transfer is None:
        return CheckOutcome("NOT_APPLICABLE", "no transfer split is registered")
    items = data[transfer.data]
    prompts = [(item.id, question_text_of(item)) for item in items]
    if repeats := repeats_of(prompts):
        message = f"{len(repeats)} prompts of the transfer split repeat another"
        return CheckOutcome("FAIL", message, float(len(repeats)), repairable=False)
    overlap = overlap_of(prompts, heldout, spec.thresholds)
    if overlap.status == "FAIL":
        return replace(overlap, detail=f"the transfer split shares items with the held-out split: {overlap.detail}")
    changes = {"n": len(items), "minimum_effect": transfer.minimum_effect, "arms": ()}
    power = design_power(spec.analysis.model_copy(update=changes))
    return replace(power, detail=f"on the transfer split, {power.detail}")


def _find_sides(evidence: Evidence) -> tuple[ArmEvidence, ArmEvidence] | None:
    """Return both stages of the transfer split; None where none is registered.

    Raises:
        EvidenceMissing: one has no accepted attempt.
    """
    names = list_transfer_stages(evidence.resolved.spec.analysis)
    if missing := [name for name in names if name not in evidence.arms]:
        raise EvidenceMissing(f"'{missing[0]}' of the transfer split has no accepted attempt")
    return (evidence.arms[names[0]], evidence.arms[names[1]]) if names else None


def transfer_pairs(evidence: Evidence) -> tuple[ArmPair, ...]:
    """Return every item of the transfer split as both stages answered it; nothing where none is registered.

    Raises:
        EvidenceMissing: a stage has no accepted attempt, or as :func:`both_sides`.
    """
    if (sides := _find_sides(evidence)) is None:
        return ()
    stage = evidence.resolved.spec.stage(list_transfer_stages(evidence.resolved.spec.analysis)[1])
    before, after = (side.rows for side in sides)
    return pair_answers(both_sides(replace(evidence, stage=stage), before, after))


def measure_transfer(evidence: Evidence) -> dict[str, MeasuredValue]:
    """Return what the hypothesis says of the transfer split; errors as :func:`transfer_pairs`."""
    if not (pairs := transfer_pairs(evidence)):
        return {}
    whole = count_pairs(pairs)
    gain = MeasuredValue(whole.gain, whole.n, whole.interval)
    return {"transfer_gain": gain, "transfer_p": MeasuredValue(whole.p, whole.n)}


@CHECKS.add("transfer.alike", "The transfer split was answered as the held-out split was", source=SOURCE)
def _check_sides(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare each of its stages with its arm: the same weights, settings and code; and the two with each other."""
    if (sides := _find_sides(evidence)) is None:
        return CheckOutcome("NOT_APPLICABLE", "no transfer split is registered")
    analysis, ours, theirs = evidence.resolved.spec.analysis, manifest_of(evidence), evidence.baseline_manifest
    if theirs is None or any(side.manifest is None for side in sides):
        raise EvidenceMissing("a stage of the transfer split, or the baseline, has no manifest")
    faults: list[str] = []
    for name, side, arm in zip(list_transfer_stages(analysis), sides, (theirs, ours), strict=True):
        assert side.manifest is not None
        differing = [what for what in list_differences(evidence, side, side.manifest) if what != "items"]
        if side.manifest.inputs.get("model") != arm.inputs.get("model"):
            differing.append("weights")
        if side.manifest.inputs.get("items") != evidence.resolved.list_splits()[-1]:
            differing.append("items, which are not the registered ones")
        faults += [f"'{name}' differs from its arm in {', '.join(differing)}"] if differing else []
    if different_prompts(evidence, sides[0].rows, sides[1].rows):
        faults.append("its two stages read other prompts")
    if faults:
        return CheckOutcome("FAIL", "; ".join(faults), float(len(faults)), repairable=False)
    return CheckOutcome("PASS", "both stages differ from their arms in the items alone", 0.0)


@CHECKS.add(
    "transfer.shown",
    "The gain is shown on the transfer split",
    source=SOURCE,
    blocking=False,
)
def _check_gain(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    """Test the gain on these items by the registered test; the registered hypothesis decides."""
    analysis = evidence.resolved.spec.analysis
    if analysis.transfer is None:
        return CheckOutcome("NOT_APPLICABLE", "no transfer split is registered")
    gain, p = require_metric(metrics, "transfer_gain"), require_metric(metrics, "transfer_p")
    low, high = gain.interval or (gain.value, gain.value)
    detail = f"on {gain.n} other items the gain is {gain.value:+.3f} [{low:+.3f}, {high:+.3f}], p = {p.value:.3g}"
    if holds(p.exact(), "<", analysis.alpha) and holds(gain.exact(), ">=", analysis.transfer.minimum_effect):
        return CheckOutcome("PASS", detail, gain.value)
    registered = f"registered are {analysis.transfer.minimum_effect:g} and p < {analysis.alpha:g}"
    return CheckOutcome("WARN", f"{detail}; {registered}", gain.value)
