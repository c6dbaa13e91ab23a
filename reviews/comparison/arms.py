"""The two arms of the registered comparison, item by item."""

from __future__ import annotations

from reviews.evidence.evidence import Evidence
from reviews.evidence.measured_value import MeasuredValue
from reviews.evidence.subgroups import ArmPair, apply_kind_rule, beyond, count_pairs, each_kind
from reviews.stages.evaluation.judged_answers import both_arms, both_sides, pair_answers
from reviews.statistics import mcnemar
from specs.system.errors import EvidenceMissing
from specs.system.exact import holds


def pairs_of(evidence: Evidence) -> tuple[ArmPair, ...]:
    """Return every registered item as both arms answered it, in the order of the split; errors as :func:`both_arms`."""
    return pair_answers(both_arms(evidence))


def measure_comparison(evidence: Evidence) -> dict[str, MeasuredValue]:
    """Return the metrics of the registered comparison; errors as :func:`pairs_of`."""
    pairs = pairs_of(evidence)
    whole = count_pairs(pairs)
    n = whole.n
    p_before, p_after = sum(pair.before for pair in pairs) / n, sum(pair.after for pair in pairs) / n
    kinds, analysis = each_kind(pairs), evidence.resolved.spec.analysis
    certain = [kind.part.gain for kind in kinds if holds(kind.adjusted, "<", analysis.alpha)]
    return {
        "accuracy_gain": MeasuredValue(whole.gain, n, whole.interval),
        "mcnemar_p": MeasuredValue(whole.p, n),
        "gained": MeasuredValue(whole.gained, n),
        "lost": MeasuredValue(whole.lost, n),
        "cohens_h": MeasuredValue(mcnemar.cohens_h(p_after, p_before), n),
        "kinds_gained": MeasuredValue(sum(gain > 0 for gain in certain), len(kinds)),
        "kinds_lost": MeasuredValue(sum(gain < 0 for gain in certain), len(kinds)),
        **(apply_kind_rule(analysis.kinds, kinds) if analysis.kinds else {}),
        **(beyond(pairs, list(pair_controls(evidence).values())) if analysis.controls else {}),
    }


def pair_controls(evidence: Evidence) -> dict[str, tuple[ArmPair, ...]]:
    """Return the items of every registered control as both models answered them, by the control's stages.

    Raises:
        EvidenceMissing: a control has no accepted attempt, or as :func:`both_sides`.
    """
    pairs: dict[str, tuple[ArmPair, ...]] = {}
    for control in evidence.resolved.spec.analysis.controls:
        for name in (control.before, control.after):
            if name not in evidence.arms:
                raise EvidenceMissing(f"the control '{name}' has no accepted attempt")
        rows = evidence.arms[control.before].rows, evidence.arms[control.after].rows
        pairs[f"{control.before} and {control.after}"] = pair_answers(both_sides(evidence, *rows))
    return pairs
