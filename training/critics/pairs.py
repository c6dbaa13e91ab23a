"""Preferences from comparisons and revisions: which pairs follow, which are whole, on which side of the split they are.

Free of torch and pure: the job makes the pairs with these functions, and the measurer makes them again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import combinations

from specs.evidence import Example
from specs.kinds_critics import PreferParameters
from specs.rows_critics import CandidateRow, ComparisonRow, NegativeType, Preference, RevisionRow
from training.critics.negatives import LEAST_CHARACTERS, Best, negatives, words
from training.critics.subjects import Pair

WRONG_BY_LENGTH: tuple[NegativeType, ...] = ("verbosity", "under_explanation")
"""Types of negatives that differ in length on purpose."""


def eligible(row: CandidateRow) -> bool:
    """Say whether a sampled response may stand in a pair: it ended by itself and says something."""
    return row.finish != "length" and len(row.response.strip()) >= LEAST_CHARACTERS


def pairs_to_compare(rows: Iterable[CandidateRow]) -> list[Pair]:
    """Return every two different eligible responses to one instruction, in the order of the rows."""
    by_item: dict[str, dict[str, CandidateRow]] = {}
    for row in rows:
        if eligible(row):
            by_item.setdefault(row.item, {}).setdefault(" ".join(row.response.split()), row)
    return [
        Pair(one.item, one.group, one.instruction, one.response, other.response, one.sample, other.sample)
        for some in by_item.values()
        for one, other in combinations(some.values(), 2)
    ]


def best_of(comparisons: Sequence[ComparisonRow]) -> list[tuple[ComparisonRow, bool]]:
    """Return the comparisons that the best response of each instruction won, and whether it stood first in them.

    The best is the one with the most wins, and it lost none; where no response is such, or two are, there is no best:
    an abstention is better than a guess.
    """
    by_item: dict[str, list[ComparisonRow]] = {}
    for row in comparisons:
        by_item.setdefault(row.item, []).append(row)
    found: list[tuple[ComparisonRow, bool]] = []
    for rows in by_item.values():
        wins: dict[int, list[tuple[ComparisonRow, bool]]] = {}
        lost: set[int] = set()
        for row in rows:
            if row.preferred is None:
                continue
            first = row.preferred == "first"
            winner, loser = (row.first_sample, row.second_sample) if first else (row.second_sample, row.first_sample)
            wins.setdefault(winner, []).append((row, first))
            lost.add(loser)
        unbeaten = {sample: some for sample, some in wins.items() if sample not in lost}
        most = max((len(some) for some in unbeaten.values()), default=0)
        best = [some for some in unbeaten.values() if len(some) == most]
        if len(best) == 1:
            found += best[0]
    return found


def best_pairs(comparisons: Sequence[ComparisonRow], given: PreferParameters) -> list[Preference]:
    """Return the pairs (best, other) that follow from comparisons and are whole; splits are not set yet."""
    found: list[Preference] = []
    for row, first in best_of(comparisons):
        chosen, rejected = (row.first, row.second) if first else (row.second, row.first)
        pair = Preference(
            prompt=row.instruction,
            chosen=chosen.strip(),
            rejected=rejected.strip(),
            group=row.group,
            source="best_of_n",
            margin=min(row.plain.margin, row.swapped.margin),
            item=row.item,
            made_by="sample",
        )
        lengths = sorted((words(pair.chosen), words(pair.rejected)))
        if lengths[1] <= given.max_length_ratio * lengths[0] and not fault_in(pair):
            found.append(pair)
    return found


def all_pairs(comparisons: Sequence[ComparisonRow], given: PreferParameters) -> list[Preference]:
    """Return everything a ``prefer`` stage keeps: the judge's pairs, one negative a prompt, divided by group."""
    judged = best_pairs(comparisons, given)
    best: dict[str, Best] = {}
    for row, first in best_of(comparisons):
        chosen = row.first if first else row.second
        best.setdefault(row.item, Best(row.item, row.group, row.instruction, chosen.strip()))
    made = negatives(list(best.values()), given.hard_negatives, given.seed) if given.hard_negatives else []
    return divided([*judged, *(one for one in made if not fault_in(one))], given.validation_share, given.seed)


def revision_pairs(rows: Iterable[RevisionRow]) -> list[Preference]:
    """Return the pairs (revision, original) of chains that can be used; splits are not set yet."""
    found: list[Preference] = []
    for row in rows:
        if not row.usable or min(len(row.final.strip()), len(row.original.strip())) < LEAST_CHARACTERS:
            continue
        pair = Preference(
            prompt=row.instruction,
            chosen=row.final.strip(),
            rejected=row.original.strip(),
            group=row.group,
            source="revision",
            item=row.item,
            made_by="sample",
            principles=tuple(one.principle for one in row.rounds if not one.faults),
        )
        if not fault_in(pair):
            found.append(pair)
    return found


def revised(rows: Sequence[RevisionRow]) -> list[Example]:
    """Return the final revisions of the chains that can be used, as examples."""
    return [
        Example(
            item=row.item,
            group=row.group,
            kind=row.kind,
            sample=row.sample,
            prompt=row.instruction,
            completion=row.final.strip(),
        )
        for row in rows
        if row.usable
    ]


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


def divided(pairs: Sequence[Preference], share: float, seed: int) -> list[Preference]:
    """Return the pairs, each marked for training or validation; a group and a prompt stand on one side only.

    Args:
        pairs: of all sources.
        share: of the groups, rounded; with a share above 0 and two groups or more there is at least one.
        seed: of the choice.
    """
    clusters = _clusters(pairs)
    names = sorted(set(clusters.values()), key=lambda name: hashlib.sha256(f"{seed}/{name}".encode()).hexdigest())
    count = max(1, round(share * len(names))) if share > 0 and len(names) > 1 else 0
    validation = set(names[: min(count, len(names) - 1)])
    return [
        pair.model_copy(update={"split": "validation" if clusters[pair.group] in validation else "train"})
        for pair in pairs
    ]


def length_bias(pairs: Sequence[Preference]) -> tuple[float, float]:
    """Return the mean of words chosen - rejected, and that to the mean words of both, but for types wrong by length."""
    counted = [(words(one.chosen), words(one.rejected)) for one in pairs if one.negative_type not in WRONG_BY_LENGTH]
    if not counted:
        return 0.0, 0.0
    difference = sum(chosen - rejected for chosen, rejected in counted) / len(counted)
    middle = sum(chosen + rejected for chosen, rejected in counted) / (2 * len(counted))
    return difference, difference / middle


def _clusters(pairs: Sequence[Preference]) -> dict[str, str]:
    """Return a name for each group; groups that share a prompt have the same, so that no prompt is divided either."""
    name = {pair.group: pair.group for pair in pairs}

    def top(group: str) -> str:
        while name[group] != group:
            group = name[group]
        return group

    seen: dict[str, str] = {}
    for pair in pairs:
        prompt = " ".join(pair.prompt.lower().split())
        other = seen.setdefault(prompt, pair.group)
        one, two = sorted((top(pair.group), top(other)))
        name[two] = one
    return {group: top(group) for group in name}
