"""Golden values come from textbooks or from an implementation written here with fractions."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviews.statistics import (
    cohens_h,
    exact_mcnemar,
    mcnemar_power,
    paired_difference_interval,
    required_n,
    wilson,
)


def two_sided(gained: int, lost: int) -> Fraction:
    """The p-value by adding exact binomial probabilities."""
    n = gained + lost
    tail = sum(math.comb(n, k) for k in range(min(gained, lost) + 1))
    return min(Fraction(1), Fraction(2 * tail, 2**n))


def test_wilson_golden_values() -> None:
    assert wilson(3, 10) == pytest.approx((0.1078, 0.6032), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_proportion_and_mirrors(counts: tuple[int, int]) -> None:
    successes, n = counts
    low, high = wilson(successes, n)
    assert -1e-12 <= low <= successes / n + 1e-12 and successes / n <= high + 1e-12
    mirrored = wilson(n - successes, n)
    assert (1 - mirrored[1], 1 - mirrored[0]) == pytest.approx((low, high), abs=1e-9)


def test_mcnemar_golden_values() -> None:
    assert exact_mcnemar(21, 4) == pytest.approx(0.000911, abs=1e-6)
    assert exact_mcnemar(0, 0) == 1.0
    assert exact_mcnemar(1, 0) == 1.0


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_equals_the_sum_of_exact_probabilities(gained: int, lost: int) -> None:
    assert exact_mcnemar(gained, lost) == pytest.approx(float(two_sided(gained, lost)), rel=1e-9)


def test_cohens_h_has_its_sign() -> None:
    assert cohens_h(0.78, 0.15) == pytest.approx(1.37, abs=0.005)
    assert cohens_h(0.15, 0.78) == pytest.approx(-1.37, abs=0.005)


def test_the_paired_interval_is_that_of_bonett_and_price() -> None:
    # By hand: p = 22/82, q = 5/82, d = 17/82, se = sqrt((27/82 - (17/82)^2) / 82).
    error = 1.959964 * math.sqrt((27 / 82 - (17 / 82) ** 2) / 82)
    assert paired_difference_interval(21, 4, 80) == pytest.approx((17 / 82 - error, 17 / 82 + error), abs=1e-6)


def test_the_paired_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    generator = random.Random(5)
    covered = 0
    for _ in range(2000):
        draws = [generator.random() for _ in range(100)]
        gained, lost = sum(one < 0.2 for one in draws), sum(0.2 <= one < 0.25 for one in draws)
        low, high = paired_difference_interval(gained, lost, 100)
        covered += low <= 0.15 <= high
    assert 0.935 <= covered / 2000 <= 0.975


@pytest.mark.parametrize(
    ("n", "gained", "lost", "alpha"), [(120, 0.18, 0.03, 0.01), (30, 0.3, 0.1, 0.05), (5, 0.5, 0.5, 0.05)]
)
def test_power_is_the_share_of_simulated_studies_that_reject(n: int, gained: float, lost: float, alpha: float) -> None:
    generator = random.Random(7)
    studies = 4000
    rejected = 0
    for _ in range(studies):
        draws = [generator.random() for _ in range(n)]
        up, down = sum(one < gained for one in draws), sum(gained <= one < gained + lost for one in draws)
        rejected += two_sided(up, down) < alpha
    exact = mcnemar_power(n, gained, lost, alpha)
    error = math.sqrt(max(exact * (1 - exact), 1e-3) / studies)
    assert rejected / studies == pytest.approx(exact, abs=4 * error)


def test_power_at_no_effect_is_at_most_alpha() -> None:
    for n in (10, 50, 200):
        assert mcnemar_power(n, 0.2, 0.2, 0.05) <= 0.05
    assert mcnemar_power(50, 0.0, 0.0, 0.05) == 0.0


def test_required_n_reaches_the_power_and_not_much_more() -> None:
    n = required_n(0.18, 0.03, 0.01, 0.8)
    assert n is not None
    assert mcnemar_power(n, 0.18, 0.03, 0.01) >= 0.8 > mcnemar_power(n - 15, 0.18, 0.03, 0.01)
    assert required_n(0.1, 0.1, 0.05, 0.8, limit=500) is None


@pytest.mark.parametrize(
    "call",
    [
        lambda: wilson(3, 2),
        lambda: wilson(0, 0),
        lambda: exact_mcnemar(-1, 2),
        lambda: paired_difference_interval(3, 3, 5),
        lambda: paired_difference_interval(0, 0, 0),
        lambda: cohens_h(1.1, 0.5),
        lambda: mcnemar_power(0, 0.1, 0.1, 0.05),
        lambda: mcnemar_power(10, 0.9, 0.2, 0.05),
        lambda: mcnemar_power(10, 0.1, 0.1, 1.0),
    ],
)
def test_impossible_input_is_refused(call: object) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=r"."):
        call()
