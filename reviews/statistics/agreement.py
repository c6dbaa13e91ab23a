"""Do two raters agree beyond chance: Cohen's kappa, 1 for full agreement and 0 for what chance gives.

It does not say that the raters are right.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

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
    """Return the agreement of two raters on the same items (Cohen 1960; variance: Fleiss, Cohen and Everitt 1969).

    When both use one and the same category throughout, kappa is 0: such a sample says nothing of how well they tell
    categories apart. Raises ValueError without items, or if the two lengths differ.
    """
    n = len(ratings)
    if n < 1 or n != len(other):
        raise ValueError(f"expected two lists of equal length with ratings, got {n} and {len(other)}")
    table, ours, theirs = Counter(zip(ratings, other, strict=True)), Counter(ratings), Counter(other)
    agreed = sum(count for (rating, second), count in table.items() if rating == second)
    chance = Fraction(sum(ours[name] * theirs[name] for name in ours), n**2)
    if chance == 1:
        return Kappa(Fraction(0), (0.0, 0.0), 1.0, n)
    exact = (Fraction(agreed, n) - chance) / (1 - chance)
    apart, variance = 1 - exact, -((exact - chance * (1 - exact)) ** 2)
    for (rating, second), count in table.items():
        margins = Fraction(theirs[rating] + ours[second], n)
        term = 1 - margins * apart if rating == second else margins * apart
        variance += Fraction(count, n) * term**2
    # From fractions, so that a variance of 0 is not a hair below it.
    half = mcnemar.Z95 * math.sqrt(variance / n) / float(1 - chance)
    return Kappa(exact, (max(-1.0, float(exact) - half), min(1.0, float(exact) + half)), agreed / n, n)


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
