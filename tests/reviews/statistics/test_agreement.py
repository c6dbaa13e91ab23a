"""Agreement of two raters: textbook tables."""

from __future__ import annotations

import pytest

from reviews.statistics.agreement import cohens_kappa


def rated(both: int, first: int, second: int, none: int) -> tuple[list[int], list[int]]:
    return [1] * (both + first) + [0] * (second + none), [1] * both + [0] * first + [1] * second + [0] * none


def test_kappa_of_a_table_by_hand() -> None:
    # 20 yes-yes, 5 and 10 apart, 15 no-no: agreement 0.7, by chance 0.5, so kappa is 0.4.
    kappa = cohens_kappa(*rated(20, 5, 10, 15))
    assert (kappa.kappa, kappa.agreement, kappa.n) == (pytest.approx(0.4), 0.7, 50)
    assert kappa.interval[0] < 0.4 < kappa.interval[1] and kappa.interval == pytest.approx((0.15, 0.65), abs=0.01)


@pytest.mark.parametrize(
    ("counts", "kappa"), [((45, 15, 25, 15), 0.1304), ((25, 35, 5, 35), 0.2593), ((10, 0, 0, 10), 1.0)]
)
def test_kappa_of_known_tables(counts: tuple[int, int, int, int], kappa: float) -> None:
    assert cohens_kappa(*rated(*counts)).kappa == pytest.approx(kappa, abs=5e-5)


def test_a_sample_of_one_category_shows_nothing() -> None:
    assert cohens_kappa([1, 1, 1], [1, 1, 1]) == (0.0, (0.0, 0.0), 1.0, 3)
    assert cohens_kappa([1, 1, 0], [1, 1, 1]).kappa == pytest.approx(0.0)


def test_ratings_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(ValueError, match="two lists of equal length"):
        cohens_kappa([1], [])
