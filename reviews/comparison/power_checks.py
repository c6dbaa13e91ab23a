"""Can the registered test answer the registered question, was it carried out as registered, and was there a gap?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from reviews.checks.definition import CheckLimit, CheckOutcome, CheckRegistry, need, need_exact, require_metric
from reviews.evidence.evidence import Evidence
from reviews.statistics import mcnemar
from reviews.statistics.mcnemar import mcnemar_power, paired_difference_interval
from reviews.statistics.paired_binary import is_non_inferior
from specs.session.design import Analysis
from specs.stages.base.artifacts import Item
from specs.stages.base.metric import Metric, MetricSet
from specs.stages.metric_catalog import TEST_NAMES
from specs.stages.registry import arm_of, kind_of
from specs.system.errors import EvidenceMissing
from specs.system.exact import exact, holds

CHECKS = CheckRegistry(lambda kind: kind.arm)

_EFFECT = (CheckLimit(">=", "analysis.minimum_effect"),)


def design_power(analysis: Analysis) -> CheckOutcome:
    """Compute the power of the exact McNemar test at the registered minimum effect.

    For the test of several answers to each item that is a lower bound: the mean of an item's changes varies no more
    than a single one. By how much less depends on the models, and nothing is known of that yet.
    """
    gained = float(exact(analysis.minimum_effect) + exact(analysis.expected_lost))
    if exact(analysis.minimum_effect) + 2 * exact(analysis.expected_lost) > 1:
        return CheckOutcome(
            "FAIL", "minimum_effect and expected_lost leave no room: their shares exceed all items", repairable=False
        )
    power = mcnemar.mcnemar_power(analysis.n, gained, analysis.expected_lost, analysis.alpha)
    message = (
        f"with {analysis.n} items, a gain of {analysis.minimum_effect:g} ({gained:g} gained, "
        f"{analysis.expected_lost:g} lost) is found with probability {power:.3f}"
    )
    if analysis.test == "sign_flip":
        message += " by a single answer to each; several answers find it with no less"
    least = mcnemar.minimum_detectable_effect(analysis.n, analysis.expected_lost, analysis.alpha, analysis.power)
    smallest = "none" if least is None else f"{least:.3f}"
    reach = f"the smallest gain found with probability {analysis.power:g} is {smallest}"
    if power < analysis.power:
        enough = mcnemar.required_n(gained, analysis.expected_lost, analysis.alpha, analysis.power)
        more = f"{enough} items would do" if enough else "no reasonable number of items would do"
        detail = f"{message}, registered is {analysis.power:g}; {reach}; {more}"
        return CheckOutcome("FAIL", detail, power, repairable=False)
    if not any(arm.beaten for arm in analysis.arms):
        return CheckOutcome("PASS", f"{message}; {reach}", power)
    # The least that Holm's adjustment leaves one of the comparisons.
    together = 2 * len(analysis.arms) + 1
    lead = mcnemar.mcnemar_power(analysis.n, gained, analysis.expected_lost, float(exact(analysis.alpha) / together))
    message += f"; as large a lead over an arm, of {together} comparisons, with probability {lead:.3f} or more"
    return CheckOutcome("PASS" if lead >= analysis.power else "WARN", f"{message}; {reach}", power)


def design_kinds(analysis: Analysis, heldout: Sequence[Item]) -> CheckOutcome:
    """Check that each kind has enough items for the registered rule.

    The tests of kinds are given ``false_discovery / kinds``, the least that the adjustment leaves a single one.
    """
    rule = analysis.kinds
    if rule is None:
        return CheckOutcome("PASS", "no rule on kinds is registered")
    kinds = Counter(item.kind for item in heldout)
    faults = [
        f"{what} asks for {least} kinds, there are {len(kinds)}"
        for what, least in (("risen", rule.risen), ("kept", rule.not_fallen))
        if least is not None and least > len(kinds)
    ]
    if rule.primary is not None and rule.primary not in kinds:
        faults.append(f"no held-out item is of the primary kind '{rule.primary}'")
    parts: list[str] = []
    rising = [kind for kind in kinds if rule.risen is not None or kind == rule.primary]
    gained, lost = analysis.minimum_effect + analysis.expected_lost, analysis.expected_lost
    powers = {kind: mcnemar_power(kinds[kind], gained, lost, rule.false_discovery / len(kinds)) for kind in rising}
    if powers:
        parts.append(
            f"a gain of {analysis.minimum_effect:g} in a kind is found with probability "
            + ", ".join(f"{power:.3f} ({kind}, {kinds[kind]} items)" for kind, power in powers.items())
        )
    weak = [kind for kind, power in powers.items() if power < analysis.power]
    needed = 1 if rule.risen is None else rule.risen
    if rule.primary in weak or len(powers) - len(weak) < (needed if powers else 0):
        faults.append(f"the registered power is {analysis.power:g}")
    if rule.not_fallen is not None:
        reach = {kind: paired_difference_interval(0, 0, count)[0] for kind, count in kinds.items()}
        able = [kind for kind, low in reach.items() if is_non_inferior((low, 1.0), rule.margin)]
        parts.append(
            f"a kind in which nothing changes has an interval that begins at {min(reach.values()):.3f} or above"
        )
        if len(able) < rule.not_fallen:
            faults.append(f"with a margin of {rule.margin:g} only {len(able)} kinds can be shown not to fall")
    if faults:
        return CheckOutcome("FAIL", "; ".join((*parts, *faults)), float(len(faults)), repairable=False)
    return CheckOutcome("PASS", "; ".join(parts), min(powers.values(), default=None))


@CHECKS.add("power.n", "The registered number of items was evaluated", source="optional stopping")
def _check_n(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    if not evidence.stage.reads_heldout:
        return CheckOutcome("NOT_APPLICABLE", "the stage does not read the held-out split")
    items = need(metrics, arm_of(evidence.stage).count)
    registered = evidence.resolved.spec.analysis.n
    if items != registered:
        return CheckOutcome(
            "FAIL", f"{items:.0f} items were evaluated, {registered} are registered", items, repairable=False
        )
    return CheckOutcome("PASS", f"all {registered} registered items were evaluated", items)


@CHECKS.add("power.headroom", "The baseline leaves room for the effect", source="ceiling effects", limits=_EFFECT)
def _check_headroom(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    analysis = evidence.resolved.spec.analysis
    if evidence.stage.name != analysis.baseline:
        return CheckOutcome("NOT_APPLICABLE", "only the baseline needs headroom")
    accuracy = need_exact(metrics, arm_of(evidence.stage).metric)
    room = 1 - accuracy
    right, headroom = float(accuracy), float(room)
    if not holds(room, ">=", analysis.minimum_effect):
        detail = f"the baseline is right on {right:.3f}; a gain of {analysis.minimum_effect:g} is impossible"
        return CheckOutcome("FAIL", detail, headroom, repairable=False)
    return CheckOutcome("PASS", f"the baseline is right on {right:.3f}, which leaves room for {headroom:.3f}", headroom)


@CHECKS.add(
    "power.test",
    "The registered test was carried out, with effect size and interval",
    source="McNemar 1947; the right test for paired binary data",
    only_treatment=True,
)
def _check_test(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    """Report the registered test; of several answers to an item it tests the change in their share of right ones."""
    name = evidence.resolved.spec.analysis.p_metric
    p, gain = need(metrics, name), require_metric(metrics, "accuracy_gain")
    if gain.interval is None:
        raise EvidenceMissing("the gain has no interval")
    low, high = gain.interval
    gained, lost = need(metrics, "gained"), need(metrics, "lost")
    detail = (
        f"{TEST_NAMES[name]} p = {p:.3g} on {gained:.0f} gained and {lost:.0f} lost; gain {gain.value:+.3f} "
        f"[{low:+.3f}, {high:+.3f}], h = {need(metrics, 'cohens_h'):+.2f}"
    )
    return CheckOutcome("PASS", detail, p)


@CHECKS.add(
    "power.margin",
    "The interval of the gain lies above the minimum effect",
    source="an uncertain margin read as a pass",
    blocking=False,
    only_treatment=True,
    limits=_EFFECT,
)
def _check_margin(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    gain, least = require_metric(metrics, "accuracy_gain"), evidence.resolved.spec.analysis.minimum_effect
    low = gain.interval[0] if gain.interval else gain.value
    if holds(gain.exact(), ">=", least) and not holds(low, ">=", least):
        return CheckOutcome(
            "WARN", f"the gain {gain.value:+.3f} reaches {least:g}, its interval begins at {low:+.3f}", low
        )
    return CheckOutcome("PASS", f"the interval of the gain begins at {low:+.3f}; the minimum effect is {least:g}", low)


GAP_SOURCE = "a base model that had 300 of 300 right before it was trained, once it was prompted as the trained one was"


@CHECKS.add("gap.before_training", "The untrained model fails, and the task is solvable", source=GAP_SOURCE)
def _check_before_training(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    """Judge the gap where its last stage has run; the lint of evaluations has that before any training."""
    plan = evidence.resolved.spec.evaluation
    gap = plan.gap if plan is not None else None
    if gap is None:
        return CheckOutcome("NOT_APPLICABLE", "no gap is registered")
    order = [stage.name for stage in evidence.resolved.spec.stages]
    last = max((*gap.base, *((gap.ceiling,) if gap.ceiling else ())), key=order.index)
    if evidence.stage.name != last:
        return CheckOutcome("NOT_APPLICABLE", f"the gap is judged at '{last}'")
    parts: list[str] = []
    faults: list[str] = []
    worst = 0.0
    for name in gap.base:
        rate, (low, high) = _rate(evidence, metrics, name)
        parts.append(f"'{name}' {rate.value:.3f} [{low:.3f}, {high:.3f}]")
        worst = max(worst, rate.value)
        most = exact(gap.base_at_most)
        if not holds(rate.exact(), "<=", most) or not holds(high, "<=", most + exact(gap.slack)):
            faults.append(f"the untrained model can do it already: '{name}' is not below {gap.base_at_most:g}")
    if gap.ceiling is not None:
        rate, (low, high) = _rate(evidence, metrics, gap.ceiling)
        parts.append(f"ceiling '{gap.ceiling}' {rate.value:.3f} [{low:.3f}, {high:.3f}]")
        least = exact(gap.ceiling_at_least)
        if not holds(rate.exact(), ">=", least) or not holds(low, ">=", least - exact(gap.slack)):
            faults.append(f"the ceiling fails too: '{gap.ceiling}' is not above {gap.ceiling_at_least:g}")
    detail = "; ".join(parts)
    if faults:
        return CheckOutcome("FAIL", f"{detail}: {'; '.join(faults)}", worst, repairable=False)
    return CheckOutcome("PASS", detail, worst)


def _rate(evidence: Evidence, metrics: MetricSet | None, name: str) -> tuple[Metric, tuple[float, float]]:
    measured = metrics if name == evidence.stage.name else evidence.earlier.get(name)
    arm = kind_of(evidence.resolved.spec.stage(name)).arm
    id = arm.metric if arm else ""
    if measured is None or id not in measured.metrics:
        raise EvidenceMissing(f"'{id}' of '{name}' was not measured")
    rate = measured.metrics[id]
    if rate.interval is None:
        raise EvidenceMissing(f"'{rate.id}' has no interval")
    return rate, rate.interval
