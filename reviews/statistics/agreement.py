"""Do raters agree beyond chance: kappa of two, Fleiss' kappa of several, Krippendorff's alpha with gaps.

All are 1 for full agreement and 0 for what chance gives. None says that the raters are right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal, NamedTuple

Level = Literal["nominal", "ordinal", "interval"]
Rating = str | float


class Kappa(NamedTuple):
    """Cohen's kappa with its 95 % interval and the plain share of agreement."""

    exact: Fraction
    """Kappa as a fraction of counts; of weighted ratings it is the float."""
    interval: tuple[float, float]
    agreement: float
    n: int

    @property
    def kappa(self) -> float:
        """Kappa as a float."""
        return float(self.exact)


def cohens_kappa(
    one: Sequence[Rating], other: Sequence[Rating], *, weights: Literal["linear", "quadratic"] | None = None
) -> Kappa:
    """Return the agreement of two raters on the same items (Cohen 1960; weighted: Cohen 1968; variance: Fleiss 1969).

    When both raters use one and the same category throughout, chance alone explains everything: kappa is 0 then,
    because such a sample says nothing of how well they tell categories apart.

    Raises:
        ValueError: there are no items, or the two are not of one length.
    """
    n = len(one)
    if n < 1 or n != len(other):
        raise ValueError(f"{n} and {len(other)} ratings are no pairs")
    agreement = sum(a == b for a, b in zip(one, other, strict=True)) / n
    names = sorted({*one, *other}, key=_in_order)
    if len(names) == 1:
        return Kappa(Fraction(0), (0.0, 0.0), agreement, n)
    import numpy as np
    from statsmodels.stats.inter_rater import cohens_kappa as of_table

    place = {name: number for number, name in enumerate(names)}
    table = np.zeros((len(names), len(names)))
    for a, b in zip(one, other, strict=True):
        table[place[a], place[b]] += 1
    # A variance of 0 may come out a hair below it; then no root and no interval around kappa exist. It is 0 where one
    # rater uses one category, and the z value, which is not used, a division by it.
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Any = of_table(table, wt=weights)
    exact = Fraction(float(found.kappa)) if weights else _kappa_of(one, other)
    kappa = float(exact)
    low, high = (float(np.nan_to_num(end, nan=kappa)) for end in (found.kappa_low, found.kappa_upp))
    return Kappa(exact, (max(-1.0, low), min(1.0, high)), agreement, n)


def _kappa_of(one: Sequence[Rating], other: Sequence[Rating]) -> Fraction:
    """Return ``(observed - chance) / (1 - chance)`` from counts; more than one category is used."""
    n, ours, theirs = len(one), Counter(one), Counter(other)
    agreed = sum(a == b for a, b in zip(one, other, strict=True))
    chance = sum(ours[name] * theirs[name] for name in ours)
    return Fraction(n * agreed - chance, n * n - chance)


def fleiss_kappa(ratings: Sequence[Sequence[Rating]]) -> float:
    """Return the agreement of the same number of raters on every item (Fleiss 1971); rows are items.

    Raises:
        ValueError: there are no items, fewer than two raters, or not as many for every item.
    """
    raters = {len(row) for row in ratings}
    if len(raters) != 1 or raters <= {0, 1}:
        raise ValueError(f"items have {sorted(raters)} ratings; each needs the same number, two or more")
    counts = [Counter(row) for row in ratings]
    names = sorted({name for row in counts for name in row}, key=repr)
    if len(names) == 1:
        return 0.0
    from statsmodels.stats.inter_rater import fleiss_kappa as of_counts

    return float(of_counts([[row[name] for name in names] for row in counts]))


def krippendorff_alpha(ratings: Sequence[Sequence[float | None]], level: Level = "nominal") -> float:
    """Return Krippendorff's alpha: one minus observed over expected disagreement; rows are raters, None is a gap.

    From the coincidence matrix of values (Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability"): item u
    with m_u ratings adds ``1 / (m_u - 1)`` for every ordered pair of its ratings. The squared difference of two values
    is 0 or 1 (nominal), ``(c - k)**2`` (interval), or that of the ranks they stand for (ordinal).

    Raises:
        ValueError: rows are not of one length, or no item has two ratings.
    """
    if len({len(row) for row in ratings}) != 1:
        raise ValueError("raters have different numbers of items")
    import numpy as np

    units = [[value for value in column if value is not None] for column in zip(*ratings, strict=True)]
    units = [unit for unit in units if len(unit) > 1]
    if not units:
        raise ValueError("no item has two ratings")
    values = sorted({value for unit in units for value in unit})
    place = {value: number for number, value in enumerate(values)}
    together = np.zeros((len(values), len(values)))
    for unit in units:
        for i, one in enumerate(unit):
            for j, other in enumerate(unit):
                if i != j:
                    together[place[one], place[other]] += 1 / (len(unit) - 1)
    totals = together.sum(axis=0)
    n = float(totals.sum())
    apart = _squared_differences(values, [float(total) for total in totals], level)
    observed = float((together * apart).sum())
    expected = float((np.outer(totals, totals) * apart).sum()) / (n - 1)
    return 1 - observed / expected if expected > 0 else 0.0


def _squared_differences(values: list[float], totals: list[float], level: Level) -> Any:
    import numpy as np

    k = len(values)
    if level == "nominal":
        return 1 - np.eye(k)
    if level == "interval":
        column = np.asarray(values)
        return (column[:, None] - column[None, :]) ** 2

    # Ordinal: everything from one value to the other, half of both ends taken off.
    def reach(c: int, d: int) -> float:
        return sum(totals[c : d + 1]) - (totals[c] + totals[d]) / 2

    return np.array([[reach(min(c, d), max(c, d)) ** 2 for d in range(k)] for c in range(k)])


def _in_order(rating: Rating) -> tuple[bool, str, float]:
    """Sort numbers by size, texts by letters, never one against the other."""
    return (True, rating, 0.0) if isinstance(rating, str) else (False, "", float(rating))
