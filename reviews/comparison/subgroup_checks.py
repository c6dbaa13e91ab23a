"""Does the result hold in the parts of the held-out split, or does one part of it carry everything?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from reviews.checks.definition import CheckLimit, CheckOutcome, CheckRegistry, join_names, need, need_exact
from reviews.checks.leakage_checks import too_few_groups
from reviews.comparison.arms import pairs_of
from reviews.evidence.evidence import Evidence
from reviews.evidence.items import task_of
from reviews.evidence.subgroups import (
    ArmPair,
    clusters_of,
    count_right,
    each_kind,
    gain_over_kinds,
    gains_by_value,
    interval_over_groups,
    pair_items,
    sign_flip_p,
    without_each_kind,
)
from reviews.stages.evaluation.judged_answers import both_arms
from specs.stages.base.artifacts import Item
from specs.stages.base.metric import MetricSet
from specs.system.exact import exact, holds
from training.rules.tasks.instruction_following import follows_each

CHECKS = CheckRegistry(lambda kind: kind.arm, only_treatment=True)

FEW = 10
"""Groups, below which intervals that are drawn from groups are too narrow."""
CLUSTERED = 3
"""Groups to a cluster, from which on groups only seem to be many: two may share a rare word by chance."""
SURE_VALUE = 0.05
"""p of the items of one value, below which its gain counts as a gain."""
LEVEL = 0.05
"""Adjusted p of a type of instruction, below which it changed."""
SOURCE = "a test set whose size was fixed with 164 items of one template, which then carried all of the gain"


def _holds(evidence: Evidence, metrics: MetricSet | None) -> bool:
    """Return whether the registered hypothesis is met: only then is there a claim that could hang on a part."""
    analysis = evidence.resolved.spec.analysis
    return holds(need_exact(metrics, analysis.p_metric), "<", analysis.alpha) and holds(
        need_exact(metrics, "accuracy_gain"), ">=", analysis.minimum_effect
    )


@CHECKS.add(
    "strata.sensitivity",
    "The effect does not depend on one constraint kind",
    source=SOURCE,
    limits=(CheckLimit(">=", "analysis.minimum_effect"), CheckLimit(">=", "thresholds.kind_dependence")),
)
def _check_sensitivity(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    """Leave out each constraint kind in turn; what remains should still show a good part of the registered effect.

    Where it does not, one kind carries the result. That is a true effect in a part of what was registered, so it warns,
    and the report's first sentence names the part. It fails where the effect is not reached once every kind counts the
    same: then the number of items of that kind made the result. It fails, too, where other kinds got significantly
    worse, one of them or all together: the gain of one kind then hides what it cost.
    """
    alpha = evidence.resolved.spec.analysis.alpha
    least = evidence.resolved.spec.analysis.minimum_effect
    part = exact(least) * exact(evidence.resolved.spec.thresholds.kind_dependence)
    if not _holds(evidence, metrics):
        return CheckOutcome("NOT_APPLICABLE", "the registered effect was not reached, so it depends on no kind")
    pairs = pairs_of(evidence)
    rests = without_each_kind(pairs)
    if not rests:
        return CheckOutcome("NOT_APPLICABLE", "the split has one constraint kind: the result says nothing about others")
    weakest = min(rests, key=lambda rest: rest.gain)
    gain = float(weakest.gain)
    detail = f"without '{weakest.kind}' a gain of {gain:+.3f} remains on {weakest.n} items"
    if holds(weakest.gain, ">=", least):
        return CheckOutcome("PASS", f"{detail}, which is still {least:g} or more", gain)
    visible = tuple(
        {
            "without": rest.kind,
            "items": rest.n,
            "gained": rest.gained,
            "lost": rest.lost,
            "gain": round(float(rest.gain), 4),
        }
        for rest in sorted(rests, key=lambda rest: rest.gain)
    )
    if holds(weakest.gain, ">=", part):
        return CheckOutcome("WARN", f"{detail}, less than the registered {least:g}", gain, visible)
    message = f"{detail}, less than {float(part):g}: one kind carries the result"
    alike = gain_over_kinds(pairs)
    if not holds(alike, ">=", least):
        message = f"{message} by its number of items: with kinds that count the same the gain is {float(alike):+.3f}"
        return CheckOutcome("FAIL", message, gain, visible)
    if (weakest.gain < 0 and holds(weakest.p, "<", alpha)) or need(metrics, "kinds_lost"):
        message = f"{message}, and others got significantly worse: {weakest.lost} items lost, {weakest.gained} gained"
        return CheckOutcome("FAIL", message, gain, visible)
    return CheckOutcome("WARN", message, gain, visible)


@CHECKS.add(
    "strata.kinds",
    "No constraint kind got worse",
    source="an overall gain that hides a loss in a part; Benjamini and Hochberg 1995, JRSS B 57:289-300",
    blocking=False,
)
def _check_kinds(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    """Test each constraint kind separately, adjusted for their number: an overall gain may hide a loss in a part."""
    worse = need(metrics, "kinds_lost")
    pairs = pairs_of(evidence)
    kinds = each_kind(pairs)
    better = need(metrics, "kinds_gained")
    message = f"of {len(kinds)} constraint kinds {better:.0f} gained and {worse:.0f} lost significantly (p adjusted)"
    visible = tuple(
        {
            "kind": kind.part.kind,
            "items": kind.part.n,
            "gained": kind.part.gained,
            "lost": kind.part.lost,
            "p": float(f"{kind.p:.3g}"),
            "p_adjusted": float(f"{kind.adjusted:.3g}"),
        }
        for kind in kinds
    )
    if alone := _name_single_values(pairs, evidence.heldout):
        return CheckOutcome("WARN", f"{message}; {alone}", worse, visible)
    return CheckOutcome("WARN" if worse else "PASS", message, worse, visible)


@CHECKS.add(
    "strata.instructions",
    "No type of instruction is followed less often",
    source="instruction-level accuracy, Zhou et al. 2023, arXiv:2311.07911",
    blocking=False,
)
def _check_instructions(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Count each type of instruction separately: an item is right only where all of its instructions are followed."""
    if task_of(evidence) != "instruction_following":
        return CheckOutcome("NOT_APPLICABLE", "the items of the task have no instructions of several types")
    pairs = pair_items(
        (before.item.model_copy(update={"id": f"{place} of {before.item.id}", "kind": type_}), then, now)
        for before, after in both_arms(evidence)
        for place, ((type_, then), (_type, now)) in enumerate(
            zip(follows_each(before.item, before.text), follows_each(after.item, after.text), strict=True)
        )
    )
    tests = each_kind(pairs)
    worse = [test.part.kind for test in tests if test.part.gain < 0 and test.adjusted < LEVEL]
    rows = tuple(
        {
            "instruction": test.part.kind,
            "items": test.part.n,
            "before": count_right(pair.before for pair in pairs if pair.kind == test.part.kind),
            "after": count_right(pair.after for pair in pairs if pair.kind == test.part.kind),
            "p_adjusted": float(f"{test.adjusted:.3g}"),
        }
        for test in tests
    )
    detail = ", ".join(f"{row['instruction']} {row['before']} -> {row['after']} of {row['items']}" for row in rows)
    if worse:
        detail += f"; followed significantly less often: {join_names(worse)}"
    return CheckOutcome("WARN" if worse else "PASS", detail, float(len(worse)), rows)


def _name_single_values(pairs: Sequence[ArmPair], heldout: Sequence[Item]) -> str:
    """Return which kinds gain with a single value of their constraint only, in words."""
    alone: list[str] = []
    for kind, parts in gains_by_value(pairs, heldout).items():
        gaining = [part for part in parts if part.gain > 0]
        rest = sum(part.gain * part.n for part in parts if part not in gaining)
        if len(gaining) == 1 and rest <= 0 and gaining[0].p < SURE_VALUE:
            alone.append(f"'{kind}' gained with {gaining[0].kind} alone")
    return f"a kind is not all of its values: {join_names(alone)}" if alone else ""


@CHECKS.add(
    "strata.groups",
    "The gain holds when whole groups are drawn",
    source="items that are not independent; cluster bootstrap, Davison and Hinkley 1997",
)
def _check_groups(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    """Draw whole groups (topics) instead of items: the registered test takes items to be independent of each other."""
    analysis = evidence.resolved.spec.analysis
    alpha, pairs = analysis.alpha, pairs_of(evidence)
    if few := too_few_groups(pair.group for pair in pairs):
        return CheckOutcome("FAIL", few, float(len({pair.group for pair in pairs})), repairable=False)
    interval = interval_over_groups(pairs)
    if interval is None:
        return CheckOutcome("WARN", "a single held-out item says nothing about others")
    low, high = interval
    groups = len({pair.group for pair in pairs})
    p = sign_flip_p(pairs)
    detail = (
        f"drawn by groups ({groups}), the gain {need(metrics, 'accuracy_gain'):+.3f} "
        f"has the interval [{low:+.3f}, {high:+.3f}]; p = {p:.3g} with each group as one"
    )
    if not holds(need_exact(metrics, analysis.p_metric), "<", alpha):
        return CheckOutcome("PASS", detail, low)
    clusters = clusters_of(evidence.heldout)
    hidden, count = sign_flip_p(pairs, clusters), len(set(clusters.values()))
    if holds(p, "<", alpha) and not holds(hidden, "<", alpha):
        message = f"{detail}; but by what they ask these are {count} clusters, with each as one p = {hidden:.3g}: the "
        message += "items are not as independent as their groups say"
        if not _only_seem_many(clusters):
            return CheckOutcome("WARN", message, low)
        return CheckOutcome("FAIL", message, low, repairable=False)
    if low <= 0 <= high or not holds(p, "<", alpha):
        return CheckOutcome("WARN", f"{detail}: it rests on few groups", low)
    return CheckOutcome("PASS", detail, low)


def _only_seem_many(clusters: dict[str, int]) -> bool:
    """Return whether groups are worth few, and a third of their number or less, if all of a cluster say the same.

    What they are worth is Kish's effective size: their number squared by the sum of the squares of clusters.
    """
    squares = sum(size**2 for size in Counter(clusters.values()).values())
    return CLUSTERED * len(clusters) <= squares and len(clusters) ** 2 < FEW * squares


def independent_groups(heldout: Sequence[Item], alpha: float) -> CheckOutcome:
    """Count the groups of the split, and the clusters in which they are by what they ask.

    Groups that are worth fewer than ten and a third of their number are a warning, and a failure where there are too
    few clusters for any gain to be significant. Two groups may have a name or another rare word in common.
    """
    groups, clusters = {item.group for item in heldout}, clusters_of(heldout)
    if few := too_few_groups(item.group for item in heldout):
        return CheckOutcome("FAIL", few, float(len(groups)), repairable=False)
    count = len(set(clusters.values()))
    if not _only_seem_many(clusters):
        return CheckOutcome("PASS", f"by what they ask, {len(groups)} groups are {count}", float(count))
    by_cluster: dict[int, list[str]] = {}
    for group, cluster in clusters.items():
        by_cluster.setdefault(cluster, []).append(group)
    largest = max(by_cluster.values(), key=len)
    message = f"{len(groups)} held-out groups are {count} by what they ask: {join_names(largest)} ask about the same"
    if not holds(2 / 2**count, "<", alpha):
        message += f"; if each gained, p would be {2 / 2**count:.3g}: give them {count} groups, and add items of others"
        return CheckOutcome("FAIL", message, float(count), repairable=False)
    return CheckOutcome("WARN", f"{message}; give these one group", float(count))
