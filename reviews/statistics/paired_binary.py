"""Paired binary outcomes: the exact p as a logarithm, words for effect sizes, lift by resampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

LIFT_RESAMPLES = 10_000


class Lift(NamedTuple):
    """Candidate rate minus reference rate over the same items, with a 95 % percentile interval."""

    difference: float
    interval: tuple[float, float]
    n: int
    resamples: int
    seed: int


def log_exact_mcnemar(gained: int, lost: int) -> float:
    """Return the natural logarithm of the exact two-sided McNemar p-value, also where the p itself is below 1e-308.

    ``log(2 P(X <= min))`` for X ~ Binomial(gained + lost, 1/2), summed in logarithms; 0 at most.

    Raises:
        ValueError: a count is negative.
    """
    if gained < 0 or lost < 0:
        raise ValueError(f"{gained} gained and {lost} lost are impossible")
    n, few = gained + lost, min(gained, lost)
    if n == 0:
        return 0.0
    import numpy as np
    from scipy.special import logsumexp
    from scipy.stats import binom

    tail = np.asarray(logsumexp(binom.logpmf(np.arange(few + 1), n, 0.5)))
    return min(0.0, math.log(2) + float(tail))


def effect_word(h: float) -> Literal["none", "small", "medium", "large"]:
    """Return the word for an effect size h or d: small from 0.2, medium from 0.5, large from 0.8 (Cohen 1988)."""
    size = abs(h)
    return "large" if size >= 0.8 else "medium" if size >= 0.5 else "small" if size >= 0.2 else "none"


def lift(
    reference: Sequence[bool | float],
    candidate: Sequence[bool | float],
    *,
    resamples: int = LIFT_RESAMPLES,
    seed: int = 42,
) -> Lift:
    """Return the mean difference over items with its paired percentile bootstrap interval (Efron 1979).

    Items are drawn with replacement, each with both of its answers; the ends are the 2.5th and 97.5th percentiles.

    Raises:
        ValueError: the two are not of one length, or there are fewer than two items.
    """
    n = len(reference)
    if n != len(candidate) or n < 2:
        raise ValueError(f"{n} reference and {len(candidate)} candidate values are no two or more pairs")
    import numpy as np
    from scipy.stats import bootstrap

    differences = np.asarray(candidate, float) - np.asarray(reference, float)
    mean = float(differences.mean())
    found = bootstrap(
        (differences,),
        np.mean,
        n_resamples=resamples,
        batch=max(1, 1_000_000 // n),
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    low, high = found.confidence_interval
    return Lift(mean, (float(low), float(high)), n, resamples, seed)


def is_non_inferior(interval: tuple[float, float], margin: float) -> bool:
    """Say whether a difference is certainly above ``-margin``: the lower end of its 95 % interval is.

    The one-sided test at 2.5 % (ICH E9, section 3.3.2; Piaggio et al. 2012, JAMA 308:2594-2604).

    Raises:
        ValueError: the margin is not positive.
    """
    if not margin > 0:
        raise ValueError(f"margin {margin} is not positive")
    return interval[0] > -margin
