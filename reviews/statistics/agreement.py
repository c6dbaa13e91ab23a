"""Do two raters agree beyond chance: Cohen's kappa, 1 for full agreement and 0 for what chance gives.

It does not say that the raters are right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from reviews.statistics import mcnemar

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


class CalibrationAgreement(NamedTuple):
    """Agreement on a labelled sample."""

    n: int
    agreed: int
    exact: Fraction
    """Cohen's kappa."""
    interval: tuple[float, float]
    """The 95 % interval of kappa."""

    @property
    def kappa(self) -> float:
        """Cohen's kappa as a float."""
        return float(self.exact)


def measure_calibration(decisions: Sequence[Rating], labels: Sequence[Rating]) -> CalibrationAgreement:
    """Return how well decisions agree with labels.

    The usual interval (Fleiss, Cohen and Everitt 1969) is a point when every item agrees, however few there are. It is
    widened to the interval of Cohen's 1960 formula, which takes the agreement by chance as given, with Wilson's limits
    in the place of the observed agreement.

    Raises:
        ValueError: no items, or the two lengths differ.
    """
    kappa = cohens_kappa(decisions, labels)
    n = kappa.n
    agreed = sum(rating == other for rating, other in zip(decisions, labels, strict=True))
    ours, theirs = Counter(decisions), Counter(labels)
    chance = sum(ours[name] * theirs[name] for name in ours) / n**2
    if chance == 1:
        return CalibrationAgreement(n, agreed, Fraction(0), (-1.0, 1.0))
    low, high = ((limit - chance) / (1 - chance) for limit in mcnemar.wilson(agreed, n))
    interval = max(-1.0, min(kappa.interval[0], low)), min(1.0, max(kappa.interval[1], high))
    return CalibrationAgreement(n, agreed, kappa.exact, interval)
