"""How well a critic agrees with a person: agreement, Cohen's kappa, and an interval that is never a single point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from reviews.statistics import mcnemar
from reviews.statistics.agreement import Rating, cohens_kappa


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
