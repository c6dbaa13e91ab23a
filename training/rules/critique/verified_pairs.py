"""Pairs without a critic: the verifier of the task says which samples are right.

Pure: the job makes the pairs with these functions, and the measurer makes them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from specs.stages.base.artifacts import Item, Preference
from specs.stages.critique.parameters import BestOfNVerifiedParameters
from specs.stages.critique.rows import VerifiedRow
from specs.stages.generation.rows import GenerationRow
from training.rules.critique.hard_negatives import LEAST_CHARACTERS
from training.rules.critique.pair_selection import PairSelection, at_most, balance_and_split, select_pairs
from training.rules.tasks import judge_answers


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
            raise NotTheirs(f"sample {row.sample} of '{row.item}' is not of a prompt that came in")
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
    return sum({"accepted", "refused"} <= some for some in seen_texts.values())


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
