"""Pairwise preferences: Bradley-Terry strengths of several models, and win rates of one against another.

What it does not guarantee: that preferences are transitive, or that a judge prefers what a person would.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from reviews.statistics.mcnemar import wilson


class Strength(NamedTuple):
    """A model's strength in log-odds, with its standard error; all strengths add up to 0."""

    name: str
    strength: float
    error: float


class WinRate(NamedTuple):
    """How often the candidate is preferred (a tie counts half), with Wilson's 95 % interval over items."""

    rate: float
    interval: tuple[float, float]
    controlled: float
    """The rate at answers of equal length."""
    length_coefficient: float
    n: int


def bradley_terry(wins: Mapping[tuple[str, str], float]) -> tuple[Strength, ...]:
    """Fit ``P(a beats b) = 1 / (1 + exp(s_b - s_a))`` by maximum likelihood (Bradley and Terry 1952).

    By the minorise-maximise algorithm (Hunter 2004, Ann. Stat. 32:384-406); standard errors are those of the inverse
    Fisher information under the constraint that strengths add up to 0. A tie is half a win for both.

    Args:
        wins: ``(winner, loser)`` -> how often.

    Returns:
        Strengths, the strongest first.

    Raises:
        ValueError: fewer than two names, a negative count, or no finite maximum: some models never lost to others.
    """
    names = sorted({name for pair in wins for name in pair})
    if len(names) < 2 or any(count < 0 for count in wins.values()) or any(a == b for a, b in wins):
        raise ValueError(f"{len(names)} names and counts {list(wins.values())[:5]} are no comparison")
    import numpy as np

    place = {name: number for number, name in enumerate(names)}
    table = np.zeros((len(names), len(names)))
    for (winner, loser), count in wins.items():
        table[place[winner], place[loser]] += count
    if not _strongly_connected(table > 0):
        raise ValueError("strengths are not finite: some models never lost to the others")
    games = table + table.T
    p = np.ones(len(names))
    for _ in range(100_000):
        share = games / (p[:, None] + p[None, :])
        new = table.sum(axis=1) / share.sum(axis=1)
        new /= math.exp(float(np.log(new).mean()))
        moved = float(np.abs(np.log(new) - np.log(p)).max())
        p = new
        if moved < 1e-12:
            break
    chance = p[:, None] / (p[:, None] + p[None, :])
    information = -games * chance * (1 - chance)
    np.fill_diagonal(information, 0)
    np.fill_diagonal(information, -information.sum(axis=1))
    errors = np.sqrt(np.diag(np.linalg.pinv(information)))
    order = np.argsort(-p, kind="stable")
    return tuple(Strength(names[i], float(math.log(p[i])), float(errors[i])) for i in order)


def win_rate(outcomes: Sequence[float], length_differences: Sequence[float]) -> WinRate:
    """Return how often the candidate is preferred, raw and at equal lengths.

    The controlled rate is that of a logistic regression of the outcome on ``tanh(difference / its standard
    deviation)`` at a difference of 0, after Dubois et al. 2024 (arXiv:2404.04475) with one pair of models and no
    term for the item. Intercept and slope have normal priors of standard deviation 10 and 5, so that both stay
    finite when one side, or the longer answer, always wins.

    Args:
        outcomes: 1 candidate preferred, 0 reference preferred, 0.5 neither; one an item.
        length_differences: candidate's minus reference's length, one an item.

    Raises:
        ValueError: the two are not of one length, there are no items, or an outcome is not in [0, 1].
    """
    n = len(outcomes)
    if n < 1 or n != len(length_differences) or not all(0 <= outcome <= 1 for outcome in outcomes):
        raise ValueError(f"{n} outcomes and {len(length_differences)} lengths are no comparison")
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


def _strongly_connected(beats: Any) -> bool:
    """Say whether everybody beat everybody, directly or through others: then a finite maximum exists (Ford 1957)."""

    def reached(edges: Any) -> bool:
        seen, todo = {0}, [0]
        while todo:
            here = todo.pop()
            for there in range(len(edges)):
                if edges[here][there] and there not in seen:
                    seen.add(there)
                    todo.append(there)
        return len(seen) == len(edges)

    return reached(beats) and reached(beats.T)
