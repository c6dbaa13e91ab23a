"""Win rates of one model against another; they do not say that a judge prefers what a person would."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from reviews.statistics.mcnemar import wilson


class WinRate(NamedTuple):
    """How often the candidate is preferred (a tie counts half), with Wilson's 95 % interval over items."""

    rate: float
    interval: tuple[float, float]
    controlled: float
    """The rate at answers of equal length."""
    length_coefficient: float
    n: int


def win_rate(outcomes: Sequence[float], length_differences: Sequence[float]) -> WinRate:
    """Return how often the candidate is preferred, raw and at equal lengths.

    By item, an outcome is 1 for the candidate, 0 for the reference and 0.5 for neither, and a length difference the
    candidate's minus the reference's. The controlled rate is that of a logistic regression of the outcome on
    ``tanh(difference / its standard deviation)`` at a difference of 0, after Dubois et al. 2024 (arXiv:2404.04475) with
    one pair of models and no term for the item. Intercept and slope have normal priors of standard deviation 10 and 5,
    so that both stay finite when one side, or the longer answer, always wins.

    Raises:
        ValueError: the two lengths differ, no items, or an outcome is not in [0, 1].
    """
    n = len(outcomes)
    if n < 1 or n != len(length_differences) or not all(0 <= outcome <= 1 for outcome in outcomes):
        raise ValueError(
            f"expected a length for each outcome in [0, 1] and at least one, got {n} and {len(length_differences)}"
        )
    import numpy as np

    won, longer = np.asarray(outcomes, float), np.asarray(length_differences, float)
    spread = float(longer.std())
    x = np.tanh(longer / spread) if spread > 0 else np.zeros(n)
    intercept, slope = _logistic(won, x)
    rate = float(won.mean())
    # Ties only make outcomes vary less than wins and losses do, so the interval errs on the wide side.
    return WinRate(rate, wilson(float(won.sum()), n), 1 / (1 + math.exp(-intercept)), slope, n)


def _logistic(won: Any, x: Any) -> tuple[float, float]:
    """Return (intercept, slope) by Newton's method on the penalised likelihood."""
    import numpy as np

    design = np.column_stack([np.ones_like(x), x])
    prior = np.diag([0.01, 0.04])
    weights = np.zeros(2)
    for _ in range(100):
        chance = 1 / (1 + np.exp(-(design @ weights)))
        slope = design.T @ (won - chance) - prior @ weights
        curve = (design * (chance * (1 - chance))[:, None]).T @ design + prior
        step = np.linalg.solve(curve, slope)
        # Newton may leap where nearly all is won; a bounded step cannot.
        weights = weights + np.clip(step, -2, 2)
        if float(np.abs(step).max()) < 1e-12:
            break
    return float(weights[0]), float(weights[1])
