"""Paired binary outcomes, more than the gate's one test: McNemar by rule, p-values below 1e-308, lift by resampling.

The registered test of a session is the exact one, always (``reviews.statistics.mcnemar.exact_mcnemar``); what stands
here is for reports and for data with so many discordant items that the exact value has no float. Names fix the
direction: every difference is ``candidate - reference``, so a positive number says that the candidate is better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from reviews.statistics.mcnemar import cohens_h, exact_mcnemar

EXACT_BELOW = 25
"""Discordant items below which the chi-square approximation is not used (Edwards 1948; Fagerland et al. 2013)."""
LIFT_RESAMPLES = 10_000
_LN10 = math.log(10)


class McNemar(NamedTuple):
    """A two-sided McNemar test. ``log10_p`` is right where ``p`` underflows to 0."""

    method: Literal["exact", "chi2"]
    gained: int
    lost: int
    chi2: float | None
    """Statistic with one degree of freedom; None for the exact test."""
    p: float
    log10_p: float


class Lift(NamedTuple):
    """Candidate rate minus reference rate over the same items, with a 95 % percentile interval."""

    difference: float
    interval: tuple[float, float]
    n: int
    resamples: int
    seed: int


def mcnemar(gained: int, lost: int, *, exact_below: int = EXACT_BELOW, continuity: bool = True) -> McNemar:
    """Test whether two paired proportions differ: exactly with few discordant items, else by chi-square.

    Chi-square is ``(|gained - lost| - 1)**2 / (gained + lost)`` (McNemar 1947; the 1 is Edwards' correction 1948,
    Psychometrika 13:185-187). Its p is that of a standard normal at its root, taken in logarithms, so that neither
    ``1 - cdf`` nor an underflow can make it 0.

    Args:
        gained: items that only the candidate has right.
        lost: items that only the reference has right.
        exact_below: discordant items below which the exact binomial test is used; 0 never, a large number always.
        continuity: whether the chi-square is corrected.

    Raises:
        ValueError: a count is negative.
    """
    discordant = gained + lost
    if gained < 0 or lost < 0:
        raise ValueError(f"{gained} gained and {lost} lost are impossible")
    if discordant < exact_below or discordant == 0:
        log_p = log_exact_mcnemar(gained, lost)
        return McNemar("exact", gained, lost, None, exact_mcnemar(gained, lost), log_p / _LN10)
    from scipy.stats import norm

    apart = max(0, abs(gained - lost) - (1 if continuity else 0))
    chi2 = apart**2 / discordant
    log_p = min(0.0, math.log(2) + float(norm.logsf(math.sqrt(chi2))))
    return McNemar("chi2", gained, lost, chi2, math.exp(log_p), log_p / _LN10)


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


def effect_h(*, reference: float, candidate: float) -> float:
    """Return Cohen's h of two rates, positive when the candidate's is larger.

    Raises:
        ValueError: a rate is not between 0 and 1.
    """
    return cohens_h(candidate, reference)


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
