"""What an answer is worth, and what its teacher reads: for jobs, witnesses and gates alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from specs.stages.base.sampling import Finish
from specs.stages.finetuning.online_parameters import SelfDistillation
from training.rules.tasks.format_instructions import Judgement, Span

_LEAST_SPREAD = 1e-4
"""Added to a standard deviation, as TRL does."""
HINT_CHARACTERS = 2000
"""Characters of an answer in a hint."""


class Hint(NamedTuple):
    """What the teacher of an answer reads next to its prompt, and what is learned from it."""

    text: str
    span: Span | None = None
    """The characters of the answer whose tokens are learned from; None: those of all of it."""


def rewards_of(names: Sequence[str], *, verified: bool, finish: Finish, tokens: int, most: int) -> dict[str, float]:
    """Return the rewards of an answer by name, each between 0 and 1; raises KeyError for an unknown name."""
    every = {"verified": float(verified), "ended": float(finish == "eos"), "length": tokens / most}
    return {name: every[name] for name in names}


def sum_weighted_rewards(rewards: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Return the weighted sum."""
    return math.fsum(weights[name] * value for name, value in rewards.items())


def advantages(group: Sequence[float], *, scale: bool) -> list[float]:
    """Return what each reward of a group is above their mean, in standard deviations where they are scaled."""
    middle = fmean(group)
    spread = stdev(group) + _LEAST_SPREAD if scale else 1.0
    return [(value - middle) / spread for value in group]


def hints(
    texts: Sequence[str], judgements: Sequence[Judgement], self_distillation: SelfDistillation
) -> list[Hint | None]:
    """Return what the teacher of each answer of a group reads next to the prompt; None without a hint.

    A right answer needs none. With the target ``span`` an answer gets none if its reason names no place.
    """
    right = next(
        (text.strip() for text, judgement in zip(texts, judgements, strict=True) if judgement.passed and text.strip()),
        None,
    )
    matching_hints: list[Hint | None] = []
    for text, judgement in zip(texts, judgements, strict=True):
        span = judgement.span if self_distillation.target == "span" else None
        if judgement.passed or (self_distillation.target == "span" and span is None):
            matching_hints.append(None)
        elif right is not None and self_distillation.feedback != "verifier":
            matching_hints.append(Hint(f"A right answer is:\n{right[:HINT_CHARACTERS]}"))
        elif judgement.reason and self_distillation.feedback != "sibling":
            reason = f"This answer was wrong:\n{text.strip()[:HINT_CHARACTERS]}\nThe reason: it {judgement.reason}."
            matching_hints.append(Hint(reason, span))
        else:
            matching_hints.append(None)
    return matching_hints
