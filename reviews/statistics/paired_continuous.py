"""Paired continuous and ordinal outcomes: t, Wilcoxon, sign and Bowker tests, effect sizes and power.

Every difference is ``candidate - reference``. Items are taken to be independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from reviews.statistics.mcnemar import crossing, exact_mcnemar
from reviews.statistics.paired_binary import lift


class PairedMeans(NamedTuple):
    """A comparison of two paired means; ``d`` is in units of the average standard deviation, ``dz`` of differences."""

    n: int
    difference: float
    interval: tuple[float, float]
    """95 %, by Student's t."""
    bootstrap: tuple[float, float]
    """95 %, percentiles of 10,000 seeded resamples."""
    t: float
    p: float
    log10_p: float
    wilcoxon_p: float
    d: float
    dz: float


class SignTest(NamedTuple):
    """How many items rose, fell and stayed, and the exact two-sided p of the first two being equally likely."""

    rose: int
    fell: int
    tied: int
    p: float


class Bowker(NamedTuple):
    """A test of symmetry of a square table: chi-square, degrees of freedom and p."""

    chi2: float
    df: int
    p: float


def paired_means(reference: Sequence[float], candidate: Sequence[float]) -> PairedMeans:
    """Compare two continuous scores of the same items.

    Student's paired t (1908), Wilcoxon's signed-rank test (1945; exact without ties up to 50 items, zeros dropped),
    Cohen's d as ``mean difference / sqrt((s_reference**2 + s_candidate**2) / 2)`` and d_z as ``mean difference /
    s_difference`` (Lakens 2013, Front. Psychol. 4:863). Scores that all differ by the same amount have t = inf.

    Raises:
        ValueError: the two are not of one length, there are fewer than two items, or a score is not finite.
    """
    import numpy as np
    from scipy.stats import t as student

    before, after = _pairs(reference, candidate)
    differences = after - before
    n, mean, spread = len(differences), float(differences.mean()), float(differences.std(ddof=1))
    error = spread / math.sqrt(n)
    half = float(student.isf(0.025, n - 1)) * error
    if mean == 0:
        t, log_p = 0.0, 0.0
    elif error == 0:
        t, log_p = math.copysign(math.inf, mean), -math.inf
    else:
        t = mean / error
        log_p = min(0.0, _log_two_sided_t(abs(t), n - 1))
    apart = float(np.sqrt((before.var(ddof=1) + after.var(ddof=1)) / 2))
    return PairedMeans(
        n,
        mean,
        (mean - half, mean + half),
        lift(before.tolist(), after.tolist()).interval if spread > 0 else (mean, mean),
        t,
        math.exp(log_p),
        log_p / math.log(10),
        wilcoxon_p(reference, candidate),
        _ratio(mean, apart),
        _ratio(mean, spread),
    )


def wilcoxon_p(reference: Sequence[float], candidate: Sequence[float]) -> float:
    """Return the two-sided p of Wilcoxon's signed-rank test; 1 when nothing changed. Errors as :func:`paired_means`.

    Items that did not change are dropped (Wilcoxon 1945). Exact for up to 50 changed items without tied sizes, else
    the normal approximation with corrections for ties and continuity, as R's ``wilcox.test`` does it.
    """
    import numpy as np
    from scipy.stats import wilcoxon

    before, after = _pairs(reference, candidate)
    changed = (after - before)[after != before]
    if not len(changed):
        return 1.0
    sizes = np.abs(changed)
    exact = len(changed) <= 50 and len(np.unique(sizes)) == len(sizes)
    result: Any = wilcoxon(changed, correction=not exact, method="exact" if exact else "approx")
    return min(1.0, float(result.pvalue))


def sign_test(reference: Sequence[float], candidate: Sequence[float]) -> SignTest:
    """Count which items rose and fell, and test that exactly (Dixon and Mood 1946); errors as :func:`paired_means`."""
    before, after = _pairs(reference, candidate)
    rose, fell = int((after > before).sum()), int((after < before).sum())
    return SignTest(rose, fell, len(before) - rose - fell, exact_mcnemar(rose, fell))


def bowker(table: Sequence[Sequence[int]]) -> Bowker:
    """Test whether a square table of paired categories is symmetric (Bowker 1948, JASA 43:572-574).

    ``table[i][j]`` counts items the reference puts in i and the candidate in j. Pairs of cells that are both empty
    carry no degree of freedom. With two categories it is McNemar's test without correction. Raises ValueError if the
    table is not square or a count is negative.
    """
    k = len(table)
    if k < 2 or any(len(row) != k for row in table) or any(cell < 0 for row in table for cell in row):
        raise ValueError("the table is not square with counts of 0 or more")
    from scipy.stats import chi2 as chi_square

    pairs = [(table[i][j], table[j][i]) for i in range(k) for j in range(i) if table[i][j] + table[j][i]]
    statistic = sum((value - other) ** 2 / (value + other) for value, other in pairs)
    # sf, never 1 - cdf: the latter is 0 for everything beyond 8 standard deviations.
    return Bowker(statistic, len(pairs), float(chi_square.sf(statistic, len(pairs))) if pairs else 1.0)


def paired_t_power(n: int, dz: float, alpha: float) -> float:
    """Return the power of the two-sided paired t-test at a standardised difference ``dz``.

    From the noncentral t distribution with ``n - 1`` degrees of freedom and noncentrality ``dz sqrt(n)``. Raises
    ValueError if there are fewer than two items, or ``alpha`` is not inside (0, 1).
    """
    if n < 2 or not 0 < alpha < 1 or not math.isfinite(dz):
        raise ValueError(f"expected n >= 2, a finite dz and 0 < alpha < 1, got {n}, {dz} and {alpha}")
    from scipy.stats import nct, t

    edge, away = float(t.isf(alpha / 2, n - 1)), dz * math.sqrt(n)
    return min(1.0, float(nct.sf(edge, n - 1, away)) + float(nct.cdf(-edge, n - 1, away)))


def detectable_dz(n: int, alpha: float, power: float) -> float:
    """Return the smallest standardised difference that the paired t-test finds with a power, to 1e-9.

    Raises ValueError as :func:`paired_t_power`, or if ``power`` is not between ``alpha`` and 1.
    """
    if not alpha < power < 1:
        raise ValueError(f"power must lie between alpha {alpha} and 1, got {power}")
    from scipy.optimize import brentq

    above = 1.0
    while paired_t_power(n, above, alpha) < power:
        above *= 2

    def short(dz: float) -> float:
        return paired_t_power(n, dz, alpha) - power

    result: Any = brentq(short, 0.0, above, xtol=1e-9)
    return float(result)


def required_pairs(dz: float, alpha: float, power: float) -> int:
    """Return the smallest number of items with which the paired t-test reaches a power at ``dz``.

    Raises:
        ValueError: as :func:`detectable_dz`, or ``dz`` is 0, or more than ten million items would be needed.
    """
    if not alpha < power < 1 or dz == 0:
        raise ValueError(f"expected dz other than 0 and power between alpha {alpha} and 1, got {dz} and {power}")

    def reaches(n: int) -> bool:
        return n > 1 and paired_t_power(n, dz, alpha) >= power

    if not reaches(count := crossing(reaches, 10_000_000)):
        raise ValueError(f"dz {dz} needs more than ten million items")
    return count


def _log_two_sided_t(t: float, df: int) -> float:
    """Return log(2 P(T > t)); by the leading terms of the tail where the probability itself underflows."""
    from scipy.special import betaln, hyp2f1
    from scipy.stats import t as student

    p = 2 * float(student.sf(t, df))
    if p > 1e-300:
        return math.log(p)
    # P(|T| > t) = I_x(a, b) = x**a / (a B(a, b)) 2F1(a, 1-b; a+1; x).
    x, a, b = df / (df + t * t), df / 2, 0.5
    return a * math.log(x) - math.log(a) - float(betaln(a, b)) + math.log(hyp2f1(a, 1 - b, a + 1, x))


def _ratio(value: float, unit: float) -> float:
    if unit > 0:
        return value / unit
    return 0.0 if value == 0 else math.copysign(math.inf, value)


def _pairs(reference: Sequence[float], candidate: Sequence[float]) -> tuple[Any, Any]:
    import numpy as np

    before, after = np.asarray(reference, float), np.asarray(candidate, float)
    if before.shape != after.shape or before.ndim != 1 or len(before) < 2:
        raise ValueError(
            f"expected at least two pairs, got {len(reference)} reference and {len(candidate)} candidate values"
        )
    if not (np.isfinite(before).all() and np.isfinite(after).all()):
        raise ValueError("a score is not finite")
    return before, after
