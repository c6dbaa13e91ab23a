"""The pairs that follow from comparisons and revisions, and those of them that a stage keeps.

Pure: the job makes the pairs with these functions, and the measurer makes them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from specs.stages.base.artifacts import Example, Item, Preference
from specs.stages.critique.parameters import BestOfNParameters, BestOfNVerifiedParameters, ReviseParameters
from specs.stages.critique.rows import CandidateRow, ComparisonRow, RevisionRow, VerifiedRow
from specs.stages.generation.rows import GenerationRow
from training.rules.critique.hard_negatives import LEAST_CHARACTERS, Best, negatives
from training.rules.critique.pair_selection import (
    PairSelection,
    at_most,
    balance_and_split,
    keep_preferred_pairs,
    select_pairs,
)
from training.rules.critique.subjects import ResponsePair
from training.rules.sampling_quality import example_of
from training.rules.tasks import judge_answers


def eligible(row: CandidateRow) -> bool:
    """Return whether a sampled response may be in a pair: it ended before the limit and has enough characters."""
    return row.finish != "length" and len(row.response.strip()) >= LEAST_CHARACTERS


def pairs_to_compare(rows: Iterable[CandidateRow]) -> list[ResponsePair]:
    """Return every two different eligible responses to one instruction, in the order of the rows."""
    by_item: dict[str, dict[str, CandidateRow]] = {}
    for row in rows:
        if eligible(row):
            by_item.setdefault(row.item, {}).setdefault(" ".join(row.response.split()), row)
    return [
        ResponsePair(
            candidate_row.item,
            candidate_row.group,
            candidate_row.instruction,
            candidate_row.response,
            other.response,
            candidate_row.sample,
            other.sample,
        )
        for by_response in by_item.values()
        for candidate_row, other in combinations(by_response.values(), 2)
    ]


def best_of(comparisons: Sequence[ComparisonRow]) -> list[tuple[ComparisonRow, bool]]:
    """Return the comparisons that the best response of each instruction won, and whether it came first in them.

    The best has the most wins and no loss; if no response has, or two have, no response is best.
    """
    by_item: dict[str, list[ComparisonRow]] = {}
    for row in comparisons:
        by_item.setdefault(row.item, []).append(row)
    pairs: list[tuple[ComparisonRow, bool]] = []
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
        unbeaten = {sample: sample_wins for sample, sample_wins in wins.items() if sample not in lost}
        most = max((len(sample_wins) for sample_wins in unbeaten.values()), default=0)
        best = [sample_wins for sample_wins in unbeaten.values() if len(sample_wins) == most]
        if len(best) == 1:
            pairs += best[0]
    return pairs


def best_pairs(comparisons: Sequence[ComparisonRow]) -> list[Preference]:
    """Return the pairs (best, other) that follow from comparisons; splits are not set yet."""
    preferences: list[Preference] = []
    for row, first in best_of(comparisons):
        chosen, rejected = (row.first, row.second) if first else (row.second, row.first)
        preferences.append(
            Preference(
                prompt=row.instruction,
                chosen=chosen.strip(),
                rejected=rejected.strip(),
                group=row.group,
                source="best_of_n",
                margin=min(row.plain.margin, row.swapped.margin),
                item=row.item,
                made_by="sample",
            )
        )
    return preferences


def all_pairs(comparisons: Sequence[ComparisonRow], n_parameters: BestOfNParameters) -> PairSelection:
    """Return what a ``best_of_n`` stage keeps: the judge's pairs, and one negative per prompt."""
    best: dict[str, Best] = {}
    for row, first in best_of(comparisons):
        chosen = row.first if first else row.second
        best.setdefault(row.item, Best(row.item, row.group, row.instruction, chosen.strip()))
    made = (
        negatives(list(best.values()), n_parameters.hard_negatives, n_parameters.seed)
        if n_parameters.hard_negatives
        else []
    )
    return balance_and_split(
        select_pairs([*best_pairs(comparisons), *made], n_parameters.max_length_ratio), n_parameters
    )


def revision_pairs(rows: Iterable[RevisionRow]) -> list[Preference]:
    """Return the pairs (revision, original) of chains that can be used; splits are not set yet."""
    return [
        Preference(
            prompt=row.instruction,
            chosen=row.final.strip(),
            rejected=row.original.strip(),
            group=row.group,
            source="revision",
            item=row.item,
            made_by="sample",
            principles=tuple(revision_round.principle for revision_round in row.rounds if not revision_round.faults),
        )
        for row in rows
        if row.usable and min(len(row.final.strip()), len(row.original.strip())) >= LEAST_CHARACTERS
    ]


def revisions_to_compare(rows: Iterable[RevisionRow], revise_parameters: ReviseParameters) -> list[ResponsePair]:
    """Return the pairs for a judge of revisions: each whole pair of like length, the revision first."""
    samples = {(row.item, row.final.strip(), row.original.strip()): row.sample for row in rows}
    return [
        ResponsePair(
            str(preference.item),
            preference.group,
            preference.prompt,
            preference.chosen,
            preference.rejected,
            sample,
            sample,
        )
        for preference in select_pairs(revision_pairs(rows), revise_parameters.max_length_ratio).pairs
        for sample in (samples[str(preference.item), preference.chosen, preference.rejected],)
    ]


def all_revisions(
    rows: Iterable[RevisionRow], revise_parameters: ReviseParameters, comparisons: Sequence[ComparisonRow] | None = None
) -> PairSelection:
    """Return what a ``revise`` stage keeps of its pairs; ``comparisons`` is None without a judge.

    Raises ValueError if the judge did not compare the pairs of :func:`revisions_to_compare`.
    """
    whole = select_pairs(revision_pairs(rows), revise_parameters.max_length_ratio)
    return balance_and_split(
        whole if comparisons is None else keep_preferred_pairs(whole, comparisons), revise_parameters
    )


def collect_revised_examples(rows: Sequence[RevisionRow]) -> list[Example]:
    """Return the final revisions of the chains that can be used, as examples."""
    return [example_of(row, row.instruction, row.final.strip()) for row in rows if row.usable]


class NotTheirs(ValueError):
    """A sample belongs to no prompt, or does not repeat its words; the message says which."""


def verdicts(task: str, items: Iterable[Item], samples: Sequence[GenerationRow]) -> list[VerifiedRow]:
    """Return the verifier's verdict on every sample, in their order.

    Raises KeyError if there is no such task, NotTheirs if a sample is not of these prompts.
    """
    by_id = {item.id: item for item in items}
    pairs: list[tuple[Item, str]] = []
    for row in samples:
        item = by_id.get(row.item)
        if item is None or item.prompt != row.prompt:
            raise NotTheirs(f"sample {row.sample} of '{row.item}' does not belong to an input prompt")
        pairs.append((item, row.completion))
    return [
        VerifiedRow(
            item=row.item,
            sample=row.sample,
            verdict="truncated" if row.truncated else "accepted" if judgement.passed else "refused",
        )
        for row, judgement in zip(samples, judge_answers(task, pairs), strict=True)
    ]


def verified_pairs(
    samples: Sequence[GenerationRow],
    verified_rows: Sequence[VerifiedRow],
    verified_parameters: BestOfNVerifiedParameters,
) -> PairSelection:
    """Return the kept pairs (accepted, refused) of one prompt's samples; a sample is in one pair at most."""
    sides: dict[str, tuple[dict[str, GenerationRow], dict[str, GenerationRow]]] = {}
    for row, verified_row in zip(samples, verified_rows, strict=True):
        if verified_row.verdict != "truncated":
            accepted, refused = sides.setdefault(row.item, ({}, {}))
            # The same words twice are one sample.
            (accepted if verified_row.verdict == "accepted" else refused).setdefault(
                " ".join(row.completion.split()), row
            )
    offered = [
        _pair(good, bad)
        for accepted, refused in sides.values()
        for good, bad in zip(_long_enough(accepted), _long_enough(refused), strict=False)
    ]
    return balance_and_split(
        at_most(select_pairs(offered, verified_parameters.max_length_ratio), verified_parameters.pairs_per_prompt),
        verified_parameters,
    )


def mixed_prompts(verified_rows: Iterable[VerifiedRow]) -> int:
    """Return how many prompts have both an accepted and a refused sample."""
    seen_texts: dict[str, set[str]] = {}
    for row in verified_rows:
        seen_texts.setdefault(row.item, set()).add(row.verdict)
    return sum({"accepted", "refused"} <= sample_verdicts for sample_verdicts in seen_texts.values())


def _long_enough(samples: dict[str, GenerationRow]) -> list[GenerationRow]:
    return [row for text, row in samples.items() if len(text) >= LEAST_CHARACTERS]


def _pair(good: GenerationRow, bad: GenerationRow) -> Preference:
    return Preference(
        prompt=good.prompt,
        chosen=good.completion.strip(),
        rejected=bad.completion.strip(),
        group=good.group,
        source="verified",
        item=good.item,
        made_by="sample",
    )
