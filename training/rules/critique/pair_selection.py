"""Selects the pairs to keep, in one way for all stages that make pairs, and says why others are dropped.

Pure: the job calls these functions, and the measurer calls them again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from specs.stages.base.artifacts import NegativeType, Preference
from specs.stages.critique.parameters import Pairing
from specs.stages.critique.rows import ComparisonRow, DroppedPair, DropReason
from training.rules.critique.hard_negatives import LEAST_CHARACTERS, words
from training.rules.seeded_order import draw_share

WRONG_BY_LENGTH: tuple[NegativeType, ...] = ("verbosity", "under_explanation")
"""Types of negatives that differ in length on purpose."""
_MILLION = 1_000_000
"""Log ratios are added as whole millionths, so that a sum does not depend on its order or the machine."""


class PairSelection(NamedTuple):
    """The accepted pairs so far, and the dropped pairs, each with the first reason against it."""

    pairs: list[Preference]
    dropped: list[DroppedPair]

    def add(self, pair: Preference, reason: DropReason | None) -> None:
        """Keep a pair, or drop it for a reason."""
        if reason is None:
            self.pairs.append(pair)
        else:
            self.dropped.append(DroppedPair(reason=reason, pair=pair))

    def reasons(self) -> dict[str, int]:
        """Return how many pairs were dropped for each reason, by name."""
        return dict(sorted(Counter(dropped_pair.reason for dropped_pair in self.dropped).items()))


def select_pairs(offered: Iterable[Preference], most_ratio: float | None) -> PairSelection:
    """Keep whole pairs of like length; splits are not set yet.

    ``most_ratio`` limits the words of the longer response, as a multiple of the shorter one's; None, and negatives made
    by rule: no limit.
    """
    result = PairSelection([], [])
    for pair in offered:
        lengths = sorted((words(pair.chosen), words(pair.rejected)))
        apart = most_ratio is not None and pair.source != "hard_negative" and lengths[1] > most_ratio * lengths[0]
        result.add(pair, "fault" if fault_in(pair) else "length_ratio" if apart else None)
    return result


def keep_preferred_pairs(selection: PairSelection, comparisons: Sequence[ComparisonRow]) -> PairSelection:
    """Keep the pairs whose chosen response, which came first, a judge prefers; their margin is the smaller one.

    ``comparisons`` holds one for each pair that is kept so far, in their order; raises ValueError if it does not.
    """
    result = PairSelection([], list(selection.dropped))
    for pair, row in zip(selection.pairs, comparisons, strict=True):
        reason: DropReason | None = None
        if row.preferred != "first":
            reason = "original_preferred" if row.preferred == "second" else "no_preference"
        margin = None if reason else min(row.plain.margin, row.swapped.margin)
        result.add(pair.model_copy(update={"margin": margin}), reason)
    return result


def at_most(selection: PairSelection, of_item: int) -> PairSelection:
    """Keep the first ``of_item`` pairs of each item."""
    result, seen_counts = PairSelection([], list(selection.dropped)), Counter[str | None]()
    for pair in selection.pairs:
        seen_counts[pair.item] += 1
        result.add(pair, "surplus" if seen_counts[pair.item] > of_item else None)
    return result


def balance_and_split(selection: PairSelection, pairing: Pairing) -> PairSelection:
    """Balance the lengths of the kept pairs if the stage asks for it, and divide them by group."""
    result = selection if pairing.length_balance is None else balance_lengths(selection, pairing.length_balance)
    return PairSelection(assign_splits(result.pairs, pairing.validation_share, pairing.seed), result.dropped)


def balance_lengths(selection: PairSelection, most: float) -> PairSelection:
    """Drop pairs until chosen and rejected responses are of like length on average.

    While the mean of ln(words of chosen / words of rejected) is above ``most``, the pair with the largest ratio is
    dropped; while it is below ``-most``, the pair with the smallest; among equals the later first. Negatives that are
    wrong by their length on purpose are neither counted nor dropped.
    """
    ratios = {place: _millionths(pair) for place, pair in enumerate(selection.pairs) if _counts(pair)}
    rising = sorted(ratios, key=lambda place: (ratios[place], place))
    falling = sorted(ratios, key=lambda place: (-ratios[place], place))
    total, out = sum(ratios.values()), set[int]()
    while len(out) < len(ratios) and abs(total) > most * _MILLION * (len(ratios) - len(out)):
        # The end of the list that is sorted the other way: of equal ones the later.
        ends = rising if total > 0 else falling
        while ends[-1] in out:
            ends.pop()
        out.add(ends[-1])
        total -= ratios[ends.pop()]
    result = PairSelection([], list(selection.dropped))
    for place, pair in enumerate(selection.pairs):
        result.add(pair, "length_balance" if place in out else None)
    return result


def log_length_ratio(pairs: Sequence[Preference]) -> float:
    """Return the mean of ln(words of chosen / words of rejected), without pairs wrong by length; 0 without pairs."""
    counted = [_millionths(pair) for pair in pairs if _counts(pair)]
    return sum(counted) / (len(counted) * _MILLION) if counted else 0.0


def length_bias(pairs: Sequence[Preference]) -> tuple[Fraction, Fraction]:
    """Return the mean of words chosen - rejected, and its ratio to the mean words of both; no types wrong by length."""
    counted = [(words(preference.chosen), words(preference.rejected)) for preference in pairs if _counts(preference)]
    if not counted:
        return Fraction(0), Fraction(0)
    difference = Fraction(sum(chosen - rejected for chosen, rejected in counted), len(counted))
    middle = Fraction(sum(chosen + rejected for chosen, rejected in counted), 2 * len(counted))
    return difference, difference / middle


def fault_in(pair: Preference) -> str | None:
    """Return what is wrong with a pair, or None."""
    if pair.chosen.split() == pair.rejected.split():
        return "chosen and rejected are the same"
    for name, text in (("prompt", pair.prompt), ("chosen", pair.chosen), ("rejected", pair.rejected)):
        if len(text.strip()) < LEAST_CHARACTERS:
            return f"{name} has fewer than {LEAST_CHARACTERS} characters"
        if "\\n" in text:
            return f"{name} holds a backslash and an n, which stood for a line end once"
    if (pair.source == "hard_negative") != (pair.negative_type is not None):
        return "a hard negative has a type, and nothing else has one"
    if pair.source == "best_of_n" and pair.margin is None:
        return "the judge's pair has no margin"
    return None


def assign_splits(pairs: Sequence[Preference], share: float, seed: int) -> list[Preference]:
    """Return the pairs, each marked for training or validation; groups and prompts are on one side only.

    ``share`` of the groups, rounded, is for validation: at least one if the share is above 0 and there are two groups.
    """
    clusters = _clusters(pairs)
    validation = draw_share(clusters.values(), share, seed)
    return [
        pair.model_copy(update={"split": "validation" if clusters[pair.group] in validation else "train"})
        for pair in pairs
    ]


def _counts(pair: Preference) -> bool:
    return pair.negative_type not in WRONG_BY_LENGTH


def _millionths(pair: Preference) -> int:
    """Return ln(words of chosen / words of rejected) in millionths; both hold a word, or the pair was dropped."""
    return round(_MILLION * math.log(words(pair.chosen) / words(pair.rejected)))


def _clusters(pairs: Sequence[Preference]) -> dict[str, str]:
    """Return a name for each group; groups that share a prompt have the same name."""
    name = {pair.group: pair.group for pair in pairs}

    def top(group: str) -> str:
        while name[group] != group:
            group = name[group]
        return group

    seen_values: dict[str, str] = {}
    for pair in pairs:
        prompt = " ".join(pair.prompt.lower().split())
        other = seen_values.setdefault(prompt, pair.group)
        text, two = sorted((top(pair.group), top(other)))
        name[two] = text
    return {group: top(group) for group in name}
