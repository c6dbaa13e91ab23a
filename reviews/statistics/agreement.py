"""Do two raters agree beyond chance: Cohen's kappa, 1 for full agreement and 0 for what chance gives.

It does not say that the raters are right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

Rating = str | float


class Kappa(NamedTuple):
    """Cohen's kappa with its 95 % interval and the plain share of agreement."""

    exact: Fraction
    """Kappa as a fraction of counts."""
    interval: tuple[float, float]
    agreement: float
    n: int

    @property
    def kappa(self) -> float:
        """Kappa as a float."""
        return float(self.exact)


def cohens_kappa(ratings: Sequence[Rating], other: Sequence[Rating]) -> Kappa:
    """Return the agreement of two raters on the same items (Cohen 1960; variance: Fleiss 1969).

    When both use one and the same category throughout, kappa is 0: such a sample says nothing of how well they tell
    categories apart. Raises ValueError without items, or if the two lengths differ.
    """
    n = len(ratings)
    if n < 1 or n != len(other):
        raise ValueError(f"expected two lists of equal length with ratings, got {n} and {len(other)}")
    agreed = sum(a == b for a, b in zip(ratings, other, strict=True))
    names = sorted({*ratings, *other}, key=repr)
    if len(names) == 1:
        return Kappa(Fraction(0), (0.0, 0.0), 1.0, n)
    import numpy as np
    from statsmodels.stats.inter_rater import cohens_kappa as of_table

    place = {name: number for number, name in enumerate(names)}
    table = np.zeros((len(names), len(names)))
    for a, b in zip(ratings, other, strict=True):
        table[place[a], place[b]] += 1
    # A variance of 0 may come out a hair below it; then no root and no interval around kappa exist. It is 0 where one
    # rater uses one category, and the z value, which is not used, a division by it.
    with np.errstate(invalid="ignore", divide="ignore"):
        matching_table: Any = of_table(table)
    ours, theirs = Counter(ratings), Counter(other)
    chance = sum(ours[name] * theirs[name] for name in ours)
    # (observed - chance) / (1 - chance), from counts.
    exact = Fraction(n * agreed - chance, n * n - chance)
    low, high = (
        float(np.nan_to_num(end, nan=float(exact))) for end in (matching_table.kappa_low, matching_table.kappa_upp)
    )
    return Kappa(exact, (max(-1.0, low), min(1.0, high)), agreed / n, n)
