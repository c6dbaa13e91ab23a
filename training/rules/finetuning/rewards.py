"""What an answer is worth, and what its teacher reads: for jobs, witnesses and gates alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from specs.stages.answer_end import Finish

_LEAST_SPREAD = 1e-4
"""Added to a standard deviation, as TRL does."""
MOST_SHOWN = 2000
"""Characters of an answer in a hint."""


def rewards_of(names: Sequence[str], *, verified: bool, finish: Finish, tokens: int, most: int) -> dict[str, float]:
    """Return the rewards of an answer by name, each between 0 and 1; raises KeyError for an unknown name."""
    every = {"verified": float(verified), "ended": float(finish == "eos"), "length": tokens / most}
    return {name: every[name] for name in names}


def combined(rewards: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Return the weighted sum."""
    return math.fsum(weights[name] * value for name, value in rewards.items())


def advantages(group: Sequence[float], *, scale: bool) -> list[float]:
    """Return what each reward of a group is above their mean, in standard deviations where they are scaled."""
    middle = fmean(group)
    spread = stdev(group) + _LEAST_SPREAD if scale else 1.0
    return [(one - middle) / spread for one in group]


def hints(texts: Sequence[str], verified: Sequence[bool], reasons: Sequence[str], feedback: str) -> list[str | None]:
    """Return what the teacher of each answer of a group reads beside the prompt; None where there is nothing to tell.

    A right answer needs none. ``feedback`` is that of the parameters of self-distillation.
    """
    right = next((text.strip() for text, passed in zip(texts, verified, strict=True) if passed and text.strip()), None)
    found: list[str | None] = []
    for text, passed, reason in zip(texts, verified, reasons, strict=True):
        if passed:
            found.append(None)
        elif right is not None and feedback != "verifier":
            found.append(f"A right answer is:\n{right[:MOST_SHOWN]}")
        elif reason and feedback != "sibling":
            found.append(f"This answer was wrong:\n{text.strip()[:MOST_SHOWN]}\nThe reason: it {reason}.")
        else:
            found.append(None)
    return found
