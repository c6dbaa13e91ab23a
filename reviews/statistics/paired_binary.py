"""Paired binary outcomes: the exact p as a logarithm, words for effect sizes, lift by resampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from reviews.statistics.mcnemar import resampled_ratio, two_sided

LIFT_RESAMPLES = 10_000


class Lift(NamedTuple):
    """Candidate rate minus reference rate over the same items, with a 95 % percentile interval."""

    difference: float
    interval: tuple[float, float]
    n: int
    resamples: int
    seed: int


def log_exact_mcnemar(gained: int, lost: int) -> float:
    """Return the natural logarithm of :func:`exact_mcnemar`, also where the p itself is below 1e-308."""
    p = two_sided(gained, lost)
    return math.log(p) if p > 1e-300 else math.log(p.numerator) - math.log(p.denominator)


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

    Items are drawn with replacement, each with both of its answers. Raises ValueError if the two are not of one length,
    or there are fewer than two items.
    """
    n = len(reference)
    if n != len(candidate) or n < 2:
        raise ValueError(f"expected at least two pairs, got {n} reference and {len(candidate)} candidate values")
    import numpy as np

    differences = np.asarray(candidate, float) - np.asarray(reference, float)
    interval = resampled_ratio(differences.tolist(), [1.0] * n, resamples=resamples, seed=seed)
    assert interval is not None
    return Lift(float(differences.mean()), interval, n, resamples, seed)


def is_non_inferior(interval: tuple[float, float], margin: float) -> bool:
    """Return whether a difference is certainly above ``-margin``: the lower end of its 95 % interval is.

    The one-sided test at 2.5 % (ICH E9, section 3.3.2; Piaggio et al. 2012, JAMA 308:2594-2604). Raises ValueError if
    the margin is not positive.
    """
    if not margin > 0:
        raise ValueError(f"margin must be positive, got {margin}")
    return interval[0] > -margin
