"""The two arms of the registered comparison, item by item."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from reviews.evidence.evidence import Evidence
from reviews.evidence.measured_value import MeasuredValue
from reviews.evidence.row_reader import read_rows
from reviews.evidence.subgroups import ArmPair, apply_kind_rule, beyond, count_pairs, each_kind
from reviews.stages.evaluation.judged_answers import both_arms, both_sides, pair_answers
from reviews.statistics import mcnemar
from specs.stages.base.sampling import PromptRead
from specs.stages.evaluation.rows import PromptedRow
from specs.stages.registry import kind_of
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


class PromptDifference(NamedTuple):
    """An item of which two stages read other prompts."""

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
    sides: list[dict[str, PromptRead]] = []
    for path, what in ((before, "rows of the stage before"), (after, "rows")):
        sides.append({row.item: row.first_prompt() for row in read_rows(path, form, what)})
        if unknown := [item for item, prompt in sides[-1].items() if prompt.digest is None]:
            raise EvidenceMissing(f"{len(unknown)} of {len(sides[-1])} do not state what the model read", where=what)
    then, now = sides
    return [PromptDifference(item, then[item], now[item]) for item in now if item in then and then[item] != now[item]]


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
