"""The statistics of a paired binary comparison. scipy and statsmodels do the mathematics, imported when needed.

Not here: anything that corrects for several comparisons or looks; the registration allows one of each.
"""

from __future__ import annotations

import math

_Z95 = 1.959963984540054
"""97.5 % quantile of the standard normal distribution."""


def wilson(successes: int, n: int) -> tuple[float, float]:
    """Return the 95 % Wilson score interval of a proportion (Wilson 1927).

    Raises:
        ValueError: ``successes`` is not between 0 and ``n``, or ``n`` is 0.
    """
    if not 0 <= successes <= n or n == 0:
        raise ValueError(f"{successes} of {n} is no proportion")
    from statsmodels.stats.proportion import proportion_confint

    low, high = proportion_confint(successes, n, alpha=0.05, method="wilson")
    # Rounding may leave the bound at 0 or n successes a hair inside.
    return min(float(low), successes / n), max(float(high), successes / n)  # pyright: ignore[reportArgumentType] (numbers for scalar counts)


def exact_mcnemar(gained: int, lost: int) -> float:
    """Return the two-sided exact p-value of McNemar's test on the discordant pairs (McNemar 1947); 1 without any.

    Raises:
        ValueError: a count is negative.
    """
    if gained < 0 or lost < 0:
        raise ValueError(f"counts cannot be negative: gained {gained}, lost {lost}")
    if gained + lost == 0:
        return 1.0
    from scipy.stats import binomtest

    return float(binomtest(gained, gained + lost, 0.5).pvalue)


def paired_difference_interval(gained: int, lost: int, n: int) -> tuple[float, float]:
    """Return the 95 % interval of the difference of two paired proportions, (gained - lost) / n.

    The adjusted Wald interval of Bonett and Price (2012), which adds one pair to each discordant cell.

    Raises:
        ValueError: counts are negative or exceed ``n``, or ``n`` is 0.
    """
    if gained < 0 or lost < 0 or gained + lost > n or n == 0:
        raise ValueError(f"gained {gained} and lost {lost} do not fit into {n} pairs")
    up, down = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
    half = _Z95 * math.sqrt((up + down - (up - down) ** 2) / (n + 2))
    return max(-1.0, up - down - half), min(1.0, up - down + half)


def cohens_h(treatment: float, baseline: float) -> float:
    """Return Cohen's h of two proportions in radians; positive when the treatment is higher (Cohen 1988).

    Raises:
        ValueError: a proportion is outside [0, 1].
    """
    if not (0 <= treatment <= 1 and 0 <= baseline <= 1):
        raise ValueError(f"{treatment} and {baseline} are not both proportions")
    return 2 * math.asin(math.sqrt(treatment)) - 2 * math.asin(math.sqrt(baseline))


def mcnemar_power(n: int, gained: float, lost: float, alpha: float) -> float:
    """Return the exact unconditional power of the exact two-sided McNemar test.

    Summed over the number of discordant pairs, which is Binomial(n, gained + lost); given it, the gained ones are
    Binomial(., gained / (gained + lost)) (Miettinen 1968; Lachenbruch 1992).

    Args:
        n: number of pairs.
        gained: probability that a pair is gained.
        lost: probability that a pair is lost.
        alpha: the test rejects when p < alpha.

    Raises:
        ValueError: the probabilities are impossible, or ``n`` is less than 1.
    """
    if n < 1 or gained < 0 or lost < 0 or gained + lost > 1 or not 0 < alpha < 1:
        raise ValueError(f"impossible design: n {n}, gained {gained}, lost {lost}, alpha {alpha}")
    if gained + lost == 0:
        return 0.0
    import numpy as np
    from scipy.stats import binom

    discordant = np.arange(1, n + 1)
    # The largest k with 2 P(Binomial(m, 1/2) <= k) < alpha; -1 when even k = 0 does not reject.
    critical = binom.ppf(alpha / 2, discordant, 0.5).astype(int)
    critical = np.where(2 * binom.cdf(critical, discordant, 0.5) < alpha, critical, critical - 1)
    share = gained / (gained + lost)
    low = np.where(critical >= 0, binom.cdf(critical, discordant, share), 0.0)
    high = np.where(critical >= 0, binom.sf(discordant - critical - 1, discordant, share), 0.0)
    return float(np.sum(binom.pmf(discordant, n, gained + lost) * (low + high)))


def required_n(gained: float, lost: float, alpha: float, power: float, limit: int = 20_000) -> int | None:
    """Return a number of pairs that reaches the power, or None beyond ``limit``.

    Exact power is not monotonic in n (it is saw-toothed); doubling finds a bracket and bisection a crossing in it,
    so a slightly smaller n may reach the power too.

    Raises:
        ValueError: as in :func:`mcnemar_power`.
    """
    high = 8
    while mcnemar_power(high, gained, lost, alpha) < power:
        if high >= limit:
            return None
        high = min(2 * high, limit)
    low = 1
    while low < high:
        middle = (low + high) // 2
        if mcnemar_power(middle, gained, lost, alpha) >= power:
            high = middle
        else:
            low = middle + 1
    return high
