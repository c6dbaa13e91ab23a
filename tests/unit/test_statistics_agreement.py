"""Agreement of raters: textbook tables, the definition by pairs, Krippendorff's own example."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reviews.statistics.agreement import Level, cohens_kappa, fleiss_kappa, krippendorff_alpha

# Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability", section C: four observers, twelve units, gaps.
_ = None
OBSERVERS: list[list[float | None]] = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3],
    [_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _],
]
# Fleiss 1971, as it is commonly reprinted: ten subjects, fourteen raters, five categories.
SUBJECTS = [
    [0, 0, 0, 0, 14],
    [0, 2, 6, 4, 2],
    [0, 0, 3, 5, 6],
    [0, 3, 9, 2, 0],
    [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0],
    [3, 2, 6, 3, 0],
    [2, 5, 3, 2, 2],
    [6, 5, 2, 1, 0],
    [0, 2, 2, 3, 7],
]


def rated(both: int, first: int, second: int, none: int) -> tuple[list[int], list[int]]:
    return [1] * (both + first) + [0] * (second + none), [1] * both + [0] * first + [1] * second + [0] * none


def test_kappa_of_a_table_by_hand() -> None:
    # 20 yes-yes, 5 and 10 apart, 15 no-no: agreement 0.7, by chance 0.5, so kappa is 0.4.
    found = cohens_kappa(*rated(20, 5, 10, 15))
    assert (found.kappa, found.agreement, found.n) == (pytest.approx(0.4), 0.7, 50)
    assert found.interval[0] < 0.4 < found.interval[1] and found.interval == pytest.approx((0.15, 0.65), abs=0.01)


@pytest.mark.parametrize(
    ("counts", "kappa"), [((45, 15, 25, 15), 0.1304), ((25, 35, 5, 35), 0.2593), ((10, 0, 0, 10), 1.0)]
)
def test_kappa_of_known_tables(counts: tuple[int, int, int, int], kappa: float) -> None:
    assert cohens_kappa(*rated(*counts)).kappa == pytest.approx(kappa, abs=5e-5)


def test_a_sample_of_one_category_shows_nothing() -> None:
    assert cohens_kappa([1, 1, 1], [1, 1, 1]) == (0.0, (0.0, 0.0), 1.0, 3)
    assert cohens_kappa([1, 1, 0], [1, 1, 1]).kappa == pytest.approx(0.0)


def test_weighted_kappa_by_hand() -> None:
    # Distances 0 1 1 1, so 3/4; by chance from the margins (1 2 1)/4 and (2 1 1)/4 it would be 7/8.
    assert cohens_kappa([1, 2, 2, 3], [1, 3, 1, 2], weights="linear").kappa == pytest.approx(1 - (3 / 4) / (7 / 8))
    closer = cohens_kappa([1, 2, 3, 1, 2, 3], [1, 2, 3, 2, 3, 3], weights="quadratic").kappa
    further = cohens_kappa([1, 2, 3, 1, 2, 3], [1, 2, 3, 3, 3, 3], weights="quadratic").kappa
    assert closer > further


def test_categories_are_numbers_in_order_of_size() -> None:
    far = cohens_kappa([2, 10, 3, 2], [3, 10, 3, 2], weights="linear").kappa
    assert far == pytest.approx(cohens_kappa([1, 3, 2, 1], [2, 3, 2, 1], weights="linear").kappa)


def test_fleiss_on_his_own_kind_of_table() -> None:
    rows = [[category for category, count in enumerate(row) for _ in range(count)] for row in SUBJECTS]
    assert fleiss_kappa(rows) == pytest.approx(0.210, abs=5e-4)
    assert fleiss_kappa([["a", "a"], ["b", "b"]]) == pytest.approx(1.0)
    assert fleiss_kappa([["a", "a"], ["a", "a"]]) == 0.0
    with pytest.raises(ValueError, match="same number"):
        fleiss_kappa([["a", "a"], ["b"]])


@pytest.mark.parametrize(("level", "alpha"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_alpha_of_krippendorffs_own_example(level: Level, alpha: float) -> None:
    assert krippendorff_alpha(OBSERVERS, level) == pytest.approx(alpha, abs=5e-4)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=2, max_size=15))
def test_alpha_is_one_minus_disagreement_within_over_disagreement_among_all(pairs: list[tuple[int, int]]) -> None:
    every = [value for pair in pairs for value in pair]
    if len(set(every)) == 1:
        assert krippendorff_alpha(list(zip(*pairs, strict=True))) == 0.0
        return
    levels: dict[Level, Callable[[int, int], float]] = {
        "nominal": lambda a, b: float(a != b),
        "interval": lambda a, b: float((a - b) ** 2),
    }
    for level, apart in levels.items():
        within = sum(apart(a, b) for a, b in pairs) / len(pairs)
        among = [apart(a, b) for a, b in itertools.combinations(every, 2)]
        expected = 1 - within / (sum(among) / len(among))
        assert krippendorff_alpha([list(row) for row in zip(*pairs, strict=True)], level) == pytest.approx(expected)


def test_ratings_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(ValueError, match="no pairs"):
        cohens_kappa([1], [])
    with pytest.raises(ValueError, match="different numbers"):
        krippendorff_alpha([[1, 2], [1]])
    with pytest.raises(ValueError, match="two ratings"):
        krippendorff_alpha([[1, None], [None, 2]])
