"""The statistics that gates report: intervals, the exact McNemar test with its power, adjustment for many tests.

Items are taken to be independent. ``gained`` are the items that only the treatment has right, ``lost`` those only the
baseline has right: counts, or for power their probabilities. Scipy is imported where it is used: that takes longer than
most commands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

from specs.system.exact import Number

Z95 = 1.959963984540054
"""The 0.975 quantile of the standard normal distribution."""

_WILSON_Z = 1.9599639845400545
"""The same as scipy's ``norm.isf(0.025)`` gives it: intervals that were recorded come out to their last bit."""

RESAMPLES = 9999
_SEED = 1
"""Fixed, so that an audit draws the same resamples."""

LEAST_GROUPS = 4
"""The fewest groups from which resampling has a 95 % interval: of three, 1 draw in 27 takes a single group throughout,
more than the 1 in 40 that may lie below the interval, so that its end is that group's own gain."""

_WALK = 64
"""How far :func:`required_n` looks below the size that bisection finds, for an earlier tooth of the saw."""


def wilson(successes: float, n: int) -> tuple[float, float]:
    """Return the 95 % score interval of a proportion (Wilson 1927, JASA 22:209-212).

    Raises:
        ValueError: no trials, or ``successes`` is not between 0 and ``n``.
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"expected counts with 0 <= successes <= trials, got {successes} of {n}")
    # To the last bit what statsmodels gives, whose import takes longer than a gate.
    share, squared = successes / n, _WILSON_Z**2
    below = 1 + squared / n
    middle = (share + squared / (2 * n)) / below
    half = _WILSON_Z * math.sqrt(share * (1.0 - share) / n + squared / (4.0 * n**2)) / below
    # At 0 and n the ends are exactly 0 and 1; rounding would leave the observed share outside its own interval.
    return min(max(0.0, middle - half), share), max(min(1.0, middle + half), share)


def exact_mcnemar(gained: int, lost: int) -> float:
    """Return the two-sided p-value of the exact McNemar test: a sign test of the discordant pairs.

    McNemar 1947, Psychometrika 12:153-157, with the binomial distribution in place of chi-square. Without discordant
    pairs nothing speaks against equality and p is 1. Raises ValueError if a count is negative.
    """
    return float(two_sided(gained, lost))


def two_sided(gained: int, lost: int) -> Fraction:
    """Return ``2 P(X <= min)`` of ``X ~ Binomial(gained + lost, 1/2)``, 1 at most; errors as in :func:`exact_mcnemar`.

    A p-value of exactly alpha is not below it: 5 gained and none lost have 1/16, which no rounding may move.
    """
    if gained < 0 or lost < 0:
        raise ValueError(f"expected counts of 0 or more, got {gained} gained and {lost} lost")
    n, term, tail = gained + lost, 1, 1
    for k in range(min(gained, lost)):
        term = term * (n - k) // (k + 1)
        tail += term
    return min(Fraction(1), Fraction(2 * tail, 1 << n))


def paired_difference_interval(gained: int, lost: int, n: int) -> tuple[float, float]:
    """Return a 95 % interval of the difference of two paired proportions, which is ``(gained - lost) / n``.

    The adjusted Wald interval of Bonett and Price 2012, J. Educ. Behav. Stat. 37:479-488, cut at -1 and 1: its middle
    is a little nearer to zero than the observed difference.

    Raises:
        ValueError: no items, a count is negative, or there are more discordant items than items.
    """
    if n < 1 or gained < 0 or lost < 0 or gained + lost > n:
        raise ValueError(f"expected counts with gained + lost <= items, got {gained} + {lost} of {n}")
    up, down = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
    difference = up - down
    half = Z95 * math.sqrt((up + down - difference**2) / (n + 2))
    return max(-1.0, difference - half), min(1.0, difference + half)


def mean_change_interval(changes: Sequence[Number]) -> tuple[float, float]:
    """Return a 95 % interval of the mean of items' changes, each from -1 to 1.

    It is :func:`paired_difference_interval` for shares of several answers to each item: Wald's interval over
    items, after an item that changes by 1 and an item that changes by -1 are added. Answers to the same item are a
    single cluster. Raises ValueError without items, or for a change beyond 1.
    """
    if not changes or any(abs(change) > 1 for change in changes):
        raise ValueError(f"expected changes from -1 to 1, got {len(changes)}: {list(changes)[:5]}...")
    n = len(changes) + 2
    exact = [Fraction(change) for change in changes]
    mean = sum(exact, Fraction(0)) / n
    spread = (sum(change**2 for change in exact) + 2) / n - mean**2
    half = Z95 * math.sqrt(spread / n)
    return max(-1.0, float(mean) - half), min(1.0, float(mean) + half)


def grouped_difference_interval(gains: Sequence[Number], sizes: Sequence[int]) -> tuple[float, float] | None:
    """Return a 95 % interval of ``sum(gains) / sum(sizes)`` that holds when items of one group are alike.

    ``gains`` are items gained minus items lost by group, ``sizes`` all items of it; None with fewer than two groups.
    Groups are drawn with replacement, each with all of its items (the cluster bootstrap: Davison and Hinkley 1997,
    section 3.8). Below about 10 groups the interval is too narrow. Percentiles and not BCa: where every group gained
    alike the jackknife of BCa is all zeros, and its correction needs more groups than small splits have.

    Raises:
        ValueError: the two are not of one length, or a group has fewer items than it gained or lost.
    """
    if len(gains) != len(sizes) or any(size < 1 or abs(gain) > size for gain, size in zip(gains, sizes, strict=True)):
        raise ValueError(f"gains do not fit their groups: {list(gains)[:5]}... in groups of {list(sizes)[:5]}...")
    return resampled_ratio([float(gain) for gain in gains], sizes, resamples=RESAMPLES, seed=_SEED)


def resampled_ratio(
    above: Sequence[float], below: Sequence[float], *, resamples: int, seed: int
) -> tuple[float, float] | None:
    """Return the 95 % percentile interval of ``sum(above) / sum(below)`` from drawing pairs; None with one pair."""
    if len(above) < 2:
        return None
    import numpy as np

    values, others = np.asarray(above, float), np.asarray(below, float)
    # Draws as scipy's `bootstrap` makes them: it loads for longer than a gate takes.
    generator, ratios = np.random.default_rng(seed), list[Any]()
    # A batch of resamples takes some megabytes, however many pairs there are.
    batch = max(1, 1_000_000 // len(values))
    for start in range(0, resamples, batch):
        places = generator.integers(0, len(values), (min(batch, resamples - start), len(values)))
        ratios.append(values[places].sum(axis=1) / others[places].sum(axis=1))
    low, high = np.quantile(np.concatenate(ratios), (0.025, 0.975))
    return float(low), float(high)


def benjamini_hochberg(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return p-values adjusted for their number: the least false discovery rate at which each would be rejected.

    The step-up adjustment of Benjamini and Hochberg 1995, JRSS B 57:289-300: with the p-values in rising order,
    ``min over j >= i of p_j * m / j``, cut at 1. Never below the p-value itself, and in the same order. Raises
    ValueError if one is not a probability.
    """
    if not all(0 <= p <= 1 for p in p_values):
        raise ValueError(f"expected probabilities, got {list(p_values)}")
    m, least = len(p_values), Fraction(1)
    adjusted = [0.0] * m
    for rank, place in zip(range(m, 0, -1), sorted(range(m), key=lambda value: -p_values[value]), strict=True):
        # In fractions: 1/32 as the fifth of eight is 0.05, and rounding between two steps may say less.
        least = min(least, Fraction(p_values[place]) * m / rank)
        adjusted[place] = float(least)
    return tuple(adjusted)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return p-values adjusted for their number: the least family-wise error rate at which each would be rejected.

    The step-down adjustment of Holm 1979, Scand. J. Stat. 6:65-70: with the p-values in rising order, ``max over
    j <= i of p_j * (m - j + 1)``, cut at 1. Raises ValueError if one is not a probability.
    """
    if not all(0 <= p <= 1 for p in p_values):
        raise ValueError(f"expected probabilities, got {list(p_values)}")
    m, most = len(p_values), Fraction(0)
    adjusted = [0.0] * m
    for rank, place in enumerate(sorted(range(m), key=lambda value: p_values[value])):
        most = max(most, min(Fraction(1), Fraction(p_values[place]) * (m - rank)))
        adjusted[place] = float(most)
    return tuple(adjusted)


def exact_sign_flip(changes: Sequence[Number]) -> float:
    """Return the exact two-sided p of the randomisation test that turns signs: of items' changes, or of whole groups.

    Under the null each unit might as well have its sign turned (Fisher 1935, section 21; for groups Gail et al. 1996,
    Stat. Med. 15:1069-1092). Every choice of signs is counted, so that with changes of one size it is exact McNemar's
    p. Of so few units that all signs are alike too often, no p is small: 5 reach 1/16.
    """
    exact = [Fraction(change) for change in changes if change]
    whole = math.lcm(*(change.denominator for change in exact))
    sizes = [abs(int(change * whole)) for change in exact]
    if (reached := abs(int(sum(exact) * whole))) == 0:
        return 1.0
    # The coefficients of the product of (1 + x**size), each in so many bits of one integer: ways to turn such a sum.
    bits, ways = len(sizes) + 1, 1
    for size in sizes:
        ways += ways << bits * size
    above = (ways >> bits * ((sum(sizes) + reached) // 2)) % ((1 << bits) - 1)
    return float(Fraction(2 * above, 1 << len(sizes)))


def fisher_exact_above(hits: int, n: int, other_hits: int, other_n: int) -> float:
    """Return p of Fisher's exact test, one-sided: is ``hits / n`` above ``other_hits / other_n``?

    Fisher 1922, J. R. Stat. Soc. 85:87-94: the hypergeometric probability of as many hits or more among ``n`` of all.
    Without any of either it is 1. Raises ValueError if there are more hits than items.
    """
    if not (0 <= hits <= n and 0 <= other_hits <= other_n):
        raise ValueError(f"expected at most as many hits as items, got {hits} of {n} and {other_hits} of {other_n}")
    every, right = n + other_n, hits + other_hits
    ways = sum(math.comb(right, k) * math.comb(every - right, n - k) for k in range(hits, min(n, right) + 1))
    return float(Fraction(ways, math.comb(every, n)))


def cohens_h(treatment: float, baseline: float) -> float:
    """Return the effect size ``2 asin(sqrt(treatment)) - 2 asin(sqrt(baseline))`` (Cohen 1988, chapter 6).

    Raises:
        ValueError: a proportion is not between 0 and 1.
    """
    if not (0 <= treatment <= 1 and 0 <= baseline <= 1):
        raise ValueError(f"expected two proportions, got {treatment} and {baseline}")
    return 2 * math.asin(math.sqrt(treatment)) - 2 * math.asin(math.sqrt(baseline))


def mcnemar_power(n: int, gained: float, lost: float, alpha: float) -> float:
    """Return the exact unconditional power of the exact two-sided McNemar test, which rejects when p < ``alpha``.

    The number of discordant items is Binomial(n, gained + lost), and of those Binomial(discordant, gained / (gained
    + lost)) are gained; the probabilities of all outcomes that reject are added up (Duffy 1984, Biometrics
    40:1005-1015). Discordant counts with about 1e-17 of probability together are left out.

    Raises:
        ValueError: ``n`` is negative, the rates are not probabilities or sum over 1, or ``alpha`` is not inside (0, 1).
    """
    _check_rates(gained, lost, alpha)
    if n < 0:
        raise ValueError(f"n must not be negative, got {n}")
    discordant = min(1.0, gained + lost)
    # At most this is the probability of any discordant item; smaller rates underflow.
    if n * discordant < 1e-12:
        return 0.0
    first, weights = _binomial_weights(n, discordant)
    # The test rejects when the smaller discordant count is at most `most` of the tails. It grows by 0 or 1 an item, and
    # begins above what is 32 standard deviations below the mean of the first count.
    most, share = max(-1, math.floor(first / 2 - 16 * math.sqrt(first)) - 1), gained / (gained + lost)
    half, *tails = (_LowerTail(first, most, chance) for chance in (0.5, share, 1 - share))
    power = 0.0
    for count, weight in enumerate(weights, first):
        while _rejects(half.most + 1, count, 2 * (half.below + half.next()), alpha):
            for tail in (half, *tails):
                tail.raise_most()
        # P(X >= count - most) is that of at most `most` items lost.
        power += weight * sum(tail.below for tail in tails)
        for tail in (half, *tails):
            tail.add_trial()
    return min(1.0, max(0.0, power))


def _rejects(few: int, count: int, p: float, alpha: float) -> bool:
    """Return whether the p-value is below alpha; where the two are equal up to rounding, whole numbers say which."""
    return exact_mcnemar(few, count - few) < alpha if abs(p - alpha) <= 1e-9 * alpha else p < alpha


def _binomial_weights(n: int, chance: float) -> tuple[int, list[float]]:
    """Return the probabilities of Binomial(n, chance) from the first that matters on, and its count.

    They are ratios to the mode's, divided by their sum: no logarithm of a factorial rounds them.
    """
    mode = min(n, int((n + 1) * chance))
    below, above = [1.0], [1.0]
    while below[-1] > 1e-18 and mode - len(below) >= 0:
        count = mode - len(below) + 1
        below.append(below[-1] * count / (n - count + 1) * (1 - chance) / chance)
    while above[-1] > 1e-18 and mode + len(above) <= n:
        count = mode + len(above)
        above.append(above[-1] * (n - count + 1) / count * chance / (1 - chance))
    weights = below[:0:-1] + above
    total = math.fsum(weights)
    return mode - len(below) + 1, [weight / total for weight in weights]


class _LowerTail:
    """P(X <= most) of a binomial count while the number of trials and ``most`` grow by one at a time."""

    def __init__(self, trials: int, most: int, chance: float) -> None:
        self.most, self.below = most, 0.0
        self._trials, self._chance = trials, min(max(chance, 1e-300), 1 - 2**-53)
        self._at = 0.0
        # Nine standard deviations below its mean nothing is left.
        mean = trials * self._chance
        for count in range(max(0, min(most, int(mean - 9 * math.sqrt(mean)))), most + 1):
            self._at = self._probability(count)
            self.below += self._at

    def _probability(self, count: int) -> float:
        ways = math.lgamma(self._trials + 1) - math.lgamma(count + 1) - math.lgamma(self._trials - count + 1)
        return math.exp(ways + count * math.log(self._chance) + (self._trials - count) * math.log1p(-self._chance))

    def next(self) -> float:
        """Return P(X = most + 1)."""
        if self.most < 0:
            return (1 - self._chance) ** self._trials
        return self._at * (self._trials - self.most) / (self.most + 1) * self._chance / (1 - self._chance)

    def raise_most(self) -> None:
        """Count one more success among the few."""
        self._at = self.next()
        self.below += self._at
        self.most += 1

    def add_trial(self) -> None:
        """Add a trial."""
        self.below -= self._chance * self._at
        self._trials += 1
        self._at *= self._trials / (self._trials - self.most) * (1 - self._chance)


def required_n(gained: float, lost: float, alpha: float, power: float, limit: int = 100_000) -> int | None:
    """Return a number of items with which the exact McNemar test reaches a power; None if none up to ``limit`` does.

    Exact power is not monotonic in n, so the 64 sizes below the result of the bisection are checked too. That no
    smaller size reaches the power is not proved, and a few larger sizes may fall short of it again.

    Raises:
        ValueError: as :func:`mcnemar_power`, or ``power`` is not inside (0, 1), or ``limit`` is below 1.
    """
    _check_rates(gained, lost, alpha)
    if not 0 < power < 1 or limit < 1:
        raise ValueError(f"power must lie between 0 and 1 and limit be at least 1, got {power} and {limit}")

    @cache
    def reaches(n: int) -> bool:
        return mcnemar_power(n, gained, lost, alpha) >= power

    start = crossing(reaches, limit)
    return next((n for n in range(max(1, start - _WALK), start + 1) if reaches(n)), None)


def minimum_detectable_effect(n: int, lost: float, alpha: float, power: float) -> float | None:
    """Return the smallest gain that the exact McNemar test finds with a power, when ``lost`` of the items get worse.

    The gain is the share gained minus the share lost, to 1e-6; None when even the largest is not found with this power.

    Raises:
        ValueError: as :func:`mcnemar_power`, or ``lost`` is above 0.5, or ``power`` is not inside (0, 1).
    """
    _check_rates(lost, lost, alpha)
    if not 0 < power < 1:
        raise ValueError(f"power must lie between 0 and 1, got {power}")
    below, above = 0.0, 1 - 2 * lost
    if mcnemar_power(n, above + lost, lost, alpha) < power:
        return None
    while above - below > 1e-6:
        middle = (below + above) / 2
        reaches = mcnemar_power(n, middle + lost, lost, alpha) >= power
        below, above = (below, middle) if reaches else (middle, above)
    return above


def crossing(reaches: Callable[[int], bool], limit: int) -> int:
    """Return an ``n`` where ``reaches`` begins to hold, or ``limit`` when none is found."""
    below, above = 0, 1
    while above < limit and not reaches(above):
        below, above = above, above * 2
    above = min(above, limit)
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if reaches(middle) else (middle, above)
    return above


def _check_rates(gained: float, lost: float, alpha: float) -> None:
    # Decimal rates that sum to one may sum to a hair above it in binary.
    if not (0 <= gained <= 1 and 0 <= lost <= 1 and gained + lost <= 1 + 1e-12):
        raise ValueError(f"expected two disjoint probabilities, got {gained} and {lost}")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie between 0 and 1, got {alpha}")
