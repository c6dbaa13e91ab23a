"""Can the judge of a comparison be believed, and was every kind of conversation held often enough?"""

from __future__ import annotations

from collections import Counter

from reviews.checks.definition import CheckLimit, CheckOutcome, CheckRegistry, need, need_exact
from reviews.evidence.evidence import Evidence
from reviews.evidence.items import items_of
from reviews.stages.evaluation.item_checks import ITEMS_PER_KIND, sizes_of
from reviews.stages.evaluation.pairwise_judge import calibration
from specs.stages.base.metric import MetricSet
from specs.system.errors import EvidenceMissing
from specs.system.exact import holds
from training.rules.tasks.conversation import KINDS

CHECKS = CheckRegistry(("pairwise_judge",))

LIMITS = (
    CheckLimit(">=", "thresholds.scorer_agreement"),
    CheckLimit("<=", "thresholds.scorer_length"),
    CheckLimit(">=", "thresholds.scorer_labelled"),
)


@CHECKS.add(
    "pairwise_judge.judge",
    "The judge is admitted",
    source="preferences of a judge that was never compared with people",
    limits=LIMITS,
)
def _check_judge(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    """Compare the judge with the labels of people before its preferences count."""
    labelled = calibration(evidence)
    sides, thresholds = Counter(value.label for value in labelled), evidence.resolved.spec.thresholds
    least, pro, contra = thresholds.scorer_labelled, sides["reference"], sides["candidate"]
    if len(labelled) < least or not (pro and contra):
        message = f"{len(labelled)} labelled pairs, {pro} for the reference, {contra} against it"
        raise EvidenceMissing(message, hint=f"a judge is admitted on {least} or more, with both labels")
    kappa, longer = need(metrics, "judge_kappa"), need(metrics, "judge_longer")
    detail = f"on {len(labelled)} labelled pairs kappa {kappa:.2f}, the longer answer preferred {longer:+.2f} too often"
    visible = tuple(
        {"pair": value.item.id, "label": value.label, "judged": value.preference}
        for value in labelled
        if value.label != value.preference
    )
    if not holds(need_exact(metrics, "judge_kappa"), ">=", thresholds.scorer_agreement):
        return CheckOutcome("FAIL", f"{detail}: it does not agree with people", kappa, visible, repairable=False)
    if not holds(abs(need_exact(metrics, "judge_longer")), "<=", thresholds.scorer_length):
        return CheckOutcome("FAIL", f"{detail}: it follows length", kappa, visible, repairable=False)
    return CheckOutcome("PASS", detail, kappa)


@CHECKS.add(
    "pairwise_judge.order",
    "The judge does not follow the order",
    source="Zheng et al. 2023, arXiv:2306.05685, section 3.4",
    blocking=False,
    limits=(CheckLimit("<=", "thresholds.swap_inconsistency"),),
)
def _check_order(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    flips, most = need_exact(metrics, "order_flips"), evidence.resolved.spec.thresholds.swap_inconsistency
    detail = f"the judge changes its mind with the order on {float(flips):.3f} of the items"
    return CheckOutcome("PASS" if holds(flips, "<=", most) else "WARN", detail, float(flips))


@CHECKS.add(
    "pairwise_judge.length",
    "The preference does not come from length",
    source="Dubois et al. 2024, arXiv:2404.04475",
    blocking=False,
)
def _check_length(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    """Compare the win rate with the win rate at equal lengths: if that crosses one half, length decided."""
    raw, controlled = need(metrics, "win_rate"), need(metrics, "win_rate_controlled")
    detail = f"win rate {raw:.3f}, at equal length {controlled:.3f}"
    crossed = (raw - 0.5) * (controlled - 0.5) < 0
    return CheckOutcome("WARN" if crossed else "PASS", detail, controlled)


@CHECKS.add(
    "multi_turn.kinds",
    "Every kind of conversation was held often enough",
    kinds=("multi_turn",),
    source="a claim about conversations that rests on one kind of them",
    limits=ITEMS_PER_KIND,
)
def _check_kinds(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Count the conversations of each kind, all four of which are due."""
    items = items_of(evidence)
    missing = [kind for kind in KINDS if kind not in {item.kind for item in items}]
    if missing:
        return CheckOutcome("FAIL", f"no conversation is of the kind {', '.join(missing)}", 0.0, repairable=False)
    return sizes_of(items, evidence.resolved.spec.thresholds.items_per_kind)
