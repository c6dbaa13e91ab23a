"""The arms of the registered comparison, item by item: baseline and treatment, controls, and further arms."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from reviews.evidence.evidence import Evidence
from reviews.evidence.items import answers_per_item
from reviews.evidence.measured_value import MeasuredValue
from reviews.evidence.row_lines import answer_of
from reviews.evidence.row_reader import read_rows
from reviews.evidence.subgroups import (
    ArmPair,
    PairCounts,
    apply_kind_rule,
    beyond,
    count_pairs,
    count_right,
    each_kind,
)
from reviews.stages.evaluation.judged_answers import (
    Answered,
    both_arms,
    both_sides,
    pair_answers,
    read_judged_items,
    share_right,
    solve_at_k,
)
from reviews.statistics import mcnemar
from specs.stages.base.sampling import PromptRead
from specs.stages.evaluation.rows import PromptedRow
from specs.stages.registry import kind_of
from specs.system.errors import EvidenceMissing
from specs.system.exact import Number, holds


def pairs_of(evidence: Evidence) -> tuple[ArmPair, ...]:
    """Return every registered item as both arms answered it, in the order of the split; errors as :func:`both_arms`."""
    return pair_answers(both_arms(evidence))


def measure_comparison(evidence: Evidence) -> dict[str, MeasuredValue]:
    """Return the metrics of the registered comparison; errors as :func:`pairs_of`."""
    pairs = pairs_of(evidence)
    whole = count_pairs(pairs)
    n = whole.n
    p_before, p_after = (float(sum(getattr(pair, side) for pair in pairs) / n) for side in ("before", "after"))
    kinds, analysis = each_kind(pairs), evidence.resolved.spec.analysis
    certain = [kind.part.gain for kind in kinds if holds(kind.adjusted, "<", analysis.alpha)]
    return {
        "accuracy_gain": MeasuredValue(whole.gain, n, whole.interval),
        analysis.p_metric: MeasuredValue(whole.p, n),
        "gained": MeasuredValue(whole.gained, n),
        "lost": MeasuredValue(whole.lost, n),
        "cohens_h": MeasuredValue(mcnemar.cohens_h(p_after, p_before), n),
        "kinds_gained": MeasuredValue(sum(gain > 0 for gain in certain), len(kinds)),
        "kinds_lost": MeasuredValue(sum(gain < 0 for gain in certain), len(kinds)),
        **(apply_kind_rule(analysis.kinds, kinds) if analysis.kinds else {}),
        **(beyond(pairs, list(pair_controls(evidence).values())) if analysis.controls else {}),
        **_measure_gain_at_k(evidence),
        **measure_arms(evidence),
    }


def gain_by_sample(evidence: Evidence) -> tuple[float, ...]:
    """Return the gain by each sample number alone: how it varies with the decoding seed. Nothing of single answers.

    Errors are those of :func:`both_arms`.
    """
    samples_per_item = answers_per_item(evidence)
    if samples_per_item == 1:
        return ()
    changes = [now.passed - then.passed for then, now in both_arms(evidence)]
    return tuple(statistics.fmean(changes[sample::samples_per_item]) for sample in range(samples_per_item))


def _measure_gain_at_k(evidence: Evidence) -> dict[str, MeasuredValue]:
    """Return the gain of pass@k with its interval over items; nothing where no k is registered."""
    if (k := evidence.parameters.get("k")) is None:
        return {}
    sides = [solve_at_k(side, k) for side in zip(*both_arms(evidence), strict=True)]
    changes = [after - before for before, after in zip(*sides, strict=True)]
    gain = sum(changes, Fraction(0)) / len(changes)
    return {"gain_at_k": MeasuredValue(gain, len(changes), mcnemar.mean_change_interval(changes))}


class PromptDifference(NamedTuple):
    """An item, or one of its samples, of which two stages read other prompts."""

    item: str
    before: PromptRead
    after: PromptRead


def different_prompts(evidence: Evidence, before: Path | None, after: Path | None) -> list[PromptDifference] | None:
    """Return the items whose first prompt differs between two files of rows of the stage's kind.

    None where rows of the kind state no prompts: each row of the others holds the digest of the token ids that the
    model read, whatever template, clock, tokenizer or environment made them.

    Raises:
        EvidenceMissing: a row does not state what the model read, or as :func:`read_rows`.
    """
    form = kind_of(evidence.stage).rows["rows"]
    if not issubclass(form, PromptedRow):
        return None
    sides: list[dict[tuple[str, int], PromptRead]] = []
    for path, what in ((before, "rows of the stage before"), (after, "rows")):
        sides.append({answer_of(row): row.first_prompt() for row in read_rows(path, form, what)})
        if unknown := [item for item, prompt in sides[-1].items() if prompt.digest is None]:
            raise EvidenceMissing(f"{len(unknown)} of {len(sides[-1])} do not state what the model read", where=what)
    then, now = sides
    return [PromptDifference(key[0], then[key], now[key]) for key in now if key in then and then[key] != now[key]]


def describe_prompts(differing: Sequence[PromptDifference]) -> str:
    """Return in words how prompts differ."""
    first = differing[0]
    return (
        f"items with another prompt: {len(differing)}, first '{first.item}': {first.after.tokens} tokens, "
        f"{first.before.tokens} before"
    )


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


ARM_METRICS = ("arms_lead", "arms_p")


class ArmRow(NamedTuple):
    """An arm as it came out; p-values are adjusted over all comparisons of the table."""

    name: str
    stage: str
    n: int
    right: Number
    """Items; of several answers to each, their shares."""
    gain: PairCounts | None
    """Against the baseline; None for the baseline."""
    gain_p: float
    lead: PairCounts | None
    """Of the treatment over this arm; None for baseline and treatment."""
    lead_p: float
    must_be_beaten: bool

    def is_beaten(self, alpha: float) -> bool:
        """Return whether the treatment is better than this arm."""
        return self.lead is not None and self.lead.gain > 0 and holds(self.lead_p, "<", alpha)

    def as_json(self, alpha: float) -> dict[str, Any]:
        """Return it as checks and report show it."""
        low, high = mcnemar.wilson(float(self.right), self.n)
        row: dict[str, Any] = {"name": self.name, "stage": self.stage, "items": self.n}
        row |= {"right": count_right([self.right]), "accuracy": float(self.right / self.n), "low": low, "high": high}
        for what, counts, p in (("gain", self.gain, self.gain_p), ("lead", self.lead, self.lead_p)):
            if counts is not None:
                row |= {what: float(counts.gain), f"{what}_interval": list(counts.interval), f"{what}_p_adjusted": p}
        beaten = {"must_be_beaten": self.must_be_beaten, "beaten": self.is_beaten(alpha)}
        return row if self.lead is None else row | beaten


def compare_arms(evidence: Evidence) -> tuple[ArmRow, ...]:
    """Return the rows of baseline, treatment and each further arm; nothing where no further arm is registered.

    Raises:
        EvidenceMissing: an arm has no accepted attempt, or as :func:`read_judged_items`, for the rows of any.
    """
    analysis = evidence.resolved.spec.analysis
    if not analysis.arms:
        return ()
    if missing := [arm.name for arm in analysis.arms if arm.stage not in evidence.arms]:
        raise EvidenceMissing(f"the arm '{missing[0]}' has no accepted attempt")
    baseline, treatment, *others = (
        read_judged_items(evidence, path, f"{what} rows")
        for path, what in (
            (evidence.baseline_rows, "baseline"),
            (evidence.outputs.get("rows"), "treatment"),
            *((evidence.arms[arm.stage].rows, f"arm '{arm.name}'") for arm in analysis.arms),
        )
    )
    gains = [_count(baseline, answers) for answers in (treatment, *others)]
    leads = [_count(answers, treatment) for answers in others]
    adjusted = mcnemar.holm([counts.p for counts in (*gains, *leads)])
    right = [sum(share_right(answers)) for answers in (baseline, treatment, *others)]
    n, lead_p = gains[0].n, adjusted[len(gains) :]
    return (
        ArmRow("baseline", analysis.baseline, n, right[0], None, 1.0, None, 1.0, must_be_beaten=False),
        ArmRow("treatment", analysis.treatment, n, right[1], gains[0], adjusted[0], None, 1.0, must_be_beaten=False),
        *(
            ArmRow(arm.name, arm.stage, n, right[at + 1], gains[at], adjusted[at], lead, p, must_be_beaten=arm.beaten)
            for at, (arm, lead, p) in enumerate(zip(analysis.arms, leads, lead_p, strict=True), 1)
        ),
    )


def _count(before: Sequence[Answered], after: Sequence[Answered]) -> PairCounts:
    return count_pairs(pair_answers(zip(before, after, strict=True)))


def measure_arms(evidence: Evidence) -> dict[str, MeasuredValue]:
    """Return what the hypothesis says of arms that must be beaten; errors as :func:`compare_arms`."""
    rows = [row for row in compare_arms(evidence) if row.must_be_beaten]
    leads = [row.lead for row in rows if row.lead is not None]
    if not leads:
        return {}
    least = min(leads, key=lambda lead: lead.gain)
    return {
        "arms_lead": MeasuredValue(least.gain, least.n, least.interval),
        "arms_p": MeasuredValue(max(row.lead_p for row in rows), least.n),
    }
