"""The statistics against hand-written exact arithmetic, simulation and known figures."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reviews.statistics.mcnemar import (
    cohens_h,
    crossing,
    exact_mcnemar,
    fisher_exact_above,
    mcnemar_power,
    paired_difference_interval,
    required_n,
    wilson,
)


def sign_test(gained: int, lost: int) -> Fraction:
    """Two-sided exact p by counting outcomes."""
    n, few = gained + lost, min(gained, lost)
    tail = sum(math.comb(n, k) for k in range(few + 1))
    return min(Fraction(1), Fraction(2 * tail, 2**n))


def power_by_enumeration(n: int, gained: Fraction, lost: Fraction, alpha: Fraction) -> Fraction:
    """Add up the trinomial probability of every outcome that rejects."""
    total = Fraction(0)
    for up in range(n + 1):
        for down in range(n + 1 - up):
            if sign_test(up, down) < alpha:
                ways = math.comb(n, up) * math.comb(n - up, down)
                total += ways * gained**up * lost**down * (1 - gained - lost) ** (n - up - down)
    return total


def test_wilson_is_the_known_interval() -> None:
    assert wilson(3, 10) == pytest.approx((0.1078, 0.6032), abs=5e-5)


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_ends_where_the_score_test_is_at_its_critical_value(counts: tuple[int, int]) -> None:
    successes, n = counts
    share, z = successes / n, 1.959963984540054
    for end in wilson(successes, n):
        assert abs(share - end) == pytest.approx(z * math.sqrt(max(0.0, end * (1 - end)) / n), abs=1e-6)
    low, high = wilson(successes, n)
    assert low - 1e-12 <= share <= high + 1e-12


def test_wilson_ends_at_0_and_1_exactly_though_rounding_would_pass_them() -> None:
    # Unrounded, 38 of 38 end above 1 and 0 of 77 below 0.
    assert {wilson(n, n)[1] for n in range(1, 200)} == {1.0} and {wilson(0, n)[0] for n in range(1, 200)} == {0.0}


@pytest.mark.parametrize(("successes", "n"), [(-1, 10), (11, 10), (0, 0), (1, -1)])
def test_wilson_refuses_impossible_counts(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match="expected counts"):
        wilson(successes, n)


def test_mcnemar_is_the_known_p_value() -> None:
    assert exact_mcnemar(21, 4) == pytest.approx(0.00091, abs=5e-6)
    assert exact_mcnemar(0, 0) == 1.0
    assert exact_mcnemar(5, 5) == 1.0


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_counts_outcomes_and_has_no_side(gained: int, lost: int) -> None:
    assert exact_mcnemar(gained, lost) == pytest.approx(float(sign_test(gained, lost)), rel=1e-9)
    assert exact_mcnemar(gained, lost) == pytest.approx(exact_mcnemar(lost, gained), rel=1e-12)


@pytest.mark.parametrize(("gained", "lost"), [(-1, 0), (0, -1)])
def test_mcnemar_refuses_negative_counts(gained: int, lost: int) -> None:
    with pytest.raises(ValueError, match="expected counts"):
        exact_mcnemar(gained, lost)


def test_the_interval_of_a_paired_difference_is_the_one_computed_by_hand() -> None:
    # 7 gained and 1 lost of 21: adjusted shares 8/23 and 2/23, difference 6/23, variance (10/23 - 36/529) / 23.
    variance = (Fraction(10, 23) - Fraction(36, 529)) / 23
    half = 1.959963984540054 * math.sqrt(variance)
    assert paired_difference_interval(7, 1, 21) == pytest.approx((6 / 23 - half, 6 / 23 + half), rel=1e-12)
    assert paired_difference_interval(7, 1, 21) == pytest.approx((0.01338, 0.50836), abs=5e-6)


def test_the_interval_of_a_paired_difference_is_cut_at_one() -> None:
    assert paired_difference_interval(1, 0, 1)[1] == 1.0
    assert paired_difference_interval(0, 1, 1)[0] == -1.0


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.integers(0, n), st.just(n))))
def test_the_interval_of_a_paired_difference_turns_with_the_arms(counts: tuple[int, int, int]) -> None:
    gained, lost, n = counts
    if gained + lost > n:
        gained, lost = n - gained, n - lost
    low, high = paired_difference_interval(gained, lost, n)
    assert paired_difference_interval(lost, gained, n) == pytest.approx((-high, -low), abs=1e-12)
    assert -1 <= low < high <= 1
    assert low <= (gained - lost) / n <= high


def test_the_interval_of_a_paired_difference_covers_the_truth_about_as_often_as_it_says() -> None:
    # Exact coverage at one truth, by enumeration of all outcomes.
    n, up, down = 30, 0.3, 0.1
    covered = 0.0
    for gained in range(n + 1):
        for lost in range(n + 1 - gained):
            low, high = paired_difference_interval(gained, lost, n)
            if low <= up - down <= high:
                ways = math.comb(n, gained) * math.comb(n - gained, lost)
                covered += ways * up**gained * down**lost * (1 - up - down) ** (n - gained - lost)
    assert 0.94 < covered < 0.97


@pytest.mark.parametrize(("gained", "lost", "n"), [(-1, 0, 5), (0, -1, 5), (3, 3, 5), (0, 0, 0)])
def test_the_interval_of_a_paired_difference_refuses_impossible_counts(gained: int, lost: int, n: int) -> None:
    with pytest.raises(ValueError, match="expected counts"):
        paired_difference_interval(gained, lost, n)


def test_cohens_h_is_the_known_effect() -> None:
    assert cohens_h(0.78, 0.15) == pytest.approx(1.37, abs=5e-3)
    # sin(pi / 6) ** 2 = 1 / 4 and sin(pi / 3) ** 2 = 3 / 4.
    assert cohens_h(0.75, 0.25) == pytest.approx(math.pi / 3, rel=1e-12)
    assert cohens_h(0.25, 0.75) == pytest.approx(-math.pi / 3, rel=1e-12)
    assert cohens_h(1, 0) == pytest.approx(math.pi, rel=1e-12)
    assert cohens_h(0.4, 0.4) == 0


@pytest.mark.parametrize(("treatment", "baseline"), [(1.1, 0.5), (0.5, -0.1), (math.nan, 0.5)])
def test_cohens_h_refuses_what_is_no_proportion(treatment: float, baseline: float) -> None:
    with pytest.raises(ValueError, match="proportions"):
        cohens_h(treatment, baseline)


@pytest.mark.parametrize(
    ("n", "gained", "lost", "alpha"),
    [
        (0, "0.3", "0.1", "0.05"),
        (5, "1", "0", "0.05"),
        (6, "1", "0", "0.05"),
        (20, "0.5", "0.1", "0.05"),
        (25, "0.3", "0.05", "0.01"),
        (25, "0.2", "0.2", "0.05"),
        (25, "0", "0.4", "0.05"),
        (18, "0.7", "0.3", "0.05"),
        # Here p is exactly alpha in the most extreme outcome, which must not reject.
        (5, "1", "0", "0.0625"),
        (9, "0.6", "0.2", "0.125"),
        # Here p is alpha too, and a binomial distribution in floating point says that it is less.
        (15, "0.9", "0.1", "0.11846923828125"),
        # And here it is less than alpha by a rounding, which the distribution does not see.
        (30, "0.9", "0.1", "5.9476122260093696e-05"),
        # Less than one discordant item is expected, and six may come all the same.
        (20, "0.04", "0", "0.05"),
    ],
)
def test_power_is_the_sum_over_all_outcomes(n: int, gained: str, lost: str, alpha: str) -> None:
    expected = power_by_enumeration(n, Fraction(gained), Fraction(lost), Fraction(alpha))
    assert mcnemar_power(n, float(gained), float(lost), float(alpha)) == pytest.approx(float(expected), abs=1e-9)


def test_power_is_what_simulation_finds() -> None:
    import numpy as np
    from scipy.stats import binomtest

    n, gained, lost, alpha, rounds = 120, 0.22, 0.08, 0.01, 20_000
    drawn = np.random.default_rng(20).multinomial(n, [gained, lost, 1 - gained - lost], size=rounds)[:, :2]
    outcomes, times = np.unique(drawn, axis=0, return_counts=True)
    rejected = [up + down > 0 and binomtest(int(up), int(up + down)).pvalue < alpha for up, down in outcomes]
    share = float(times[np.array(rejected)].sum()) / rounds
    error = math.sqrt(share * (1 - share) / rounds)
    assert 0.2 < share < 0.9
    assert abs(mcnemar_power(n, gained, lost, alpha) - share) < 4 * error
    # The simulation is sharp enough to tell a neighbouring effect apart.
    assert abs(mcnemar_power(n, gained + 0.01, lost, alpha) - share) > 4 * error


@settings(max_examples=40)
@given(st.integers(0, 400), st.floats(0, 0.5), st.floats(0, 0.5), st.floats(0.001, 0.2))
def test_power_is_a_probability_and_has_no_side(n: int, gained: float, lost: float, alpha: float) -> None:
    power = mcnemar_power(n, gained, lost, alpha)
    assert 0 <= power <= 1
    assert power == pytest.approx(mcnemar_power(n, lost, gained, alpha), abs=1e-9)


@settings(max_examples=40)
@given(st.integers(1, 400), st.floats(0.001, 0.5), st.floats(0.001, 0.2))
def test_without_an_effect_the_test_rejects_no_more_often_than_alpha(n: int, share: float, alpha: float) -> None:
    assert mcnemar_power(n, share, share, alpha) <= alpha


def test_without_discordant_items_there_is_no_power() -> None:
    assert mcnemar_power(500, 0.0, 0.0, 0.05) == 0.0
    assert mcnemar_power(14, 0.0, 2.2250738585072014e-308, 0.125) == 0.0


def test_rates_that_sum_to_one_but_for_rounding_are_taken() -> None:
    assert 0.7 + 0.2 + 0.1 < 1 < 0.61 + 0.29 + 0.1 + 1e-15
    assert mcnemar_power(60, 1.0, 1e-12, 0.05) == pytest.approx(1.0)
    assert mcnemar_power(60, 0.9, 0.1 + 1e-16, 0.05) == pytest.approx(mcnemar_power(60, 0.9, 0.1, 0.05), abs=1e-9)


def test_power_is_fast() -> None:
    mcnemar_power(10, 0.2, 0.1, 0.05)
    began = time.process_time()
    for _ in range(5):
        mcnemar_power(500, 0.2, 0.05, 0.01)
    assert (time.process_time() - began) / 5 < 0.05


BAD_RATES: list[dict[str, Any]] = [
    {"gained": -0.1},
    {"lost": -0.1},
    {"gained": 1.2, "lost": 0.0},
    {"gained": 0.7, "lost": 0.4},
    # Not even by a hair, as their sum may.
    {"gained": 1 + 5e-13, "lost": 0.0},
    {"gained": 0.0, "lost": 1 + 5e-13},
    {"gained": math.nan},
    {"alpha": 0.0},
    {"alpha": 1.0},
    {"alpha": math.nan},
]


@pytest.mark.parametrize("bad", [*BAD_RATES, {"n": -1}])
def test_power_refuses_impossible_input(bad: dict[str, Any]) -> None:
    good: dict[str, Any] = {"n": 100, "gained": 0.2, "lost": 0.1, "alpha": 0.05}
    assert mcnemar_power(**good) > 0
    with pytest.raises(ValueError, match=r"probabilities|alpha|n must not"):
        mcnemar_power(**good | bad)


@pytest.mark.parametrize("bad", [*BAD_RATES, {"power": 0.0}, {"power": 1.0}, {"limit": 0}])
def test_the_required_size_refuses_impossible_input(bad: dict[str, Any]) -> None:
    good: dict[str, Any] = {"gained": 0.5, "lost": 0.1, "alpha": 0.05, "power": 0.8}
    assert required_n(**good)
    with pytest.raises(ValueError, match=r"probabilities|alpha|power"):
        required_n(**good | bad)


@pytest.mark.parametrize(
    ("gained", "lost", "alpha", "power"),
    [
        (0.2, 0.05, 0.01, 0.9),
        (0.7, 0.3, 0.05, 0.8),
        (0.6, 0.4, 0.05, 0.8),
        (0.9, 0.1, 0.05, 0.9),
        (1.0, 0.0, 0.05, 0.8),
    ],
)
def test_the_required_size_is_the_first_that_reaches_the_power(
    gained: float, lost: float, alpha: float, power: float
) -> None:
    first = next(n for n in range(1, 1000) if mcnemar_power(n, gained, lost, alpha) >= power)
    assert required_n(gained, lost, alpha, power) == first


def test_the_required_size_needs_the_walk_because_power_is_saw_toothed() -> None:
    size = required_n(0.7, 0.3, 0.05, 0.8)
    assert size is not None
    # One more item lowers the power below the target again: bisection alone may end at a later tooth.
    assert any(mcnemar_power(n, 0.7, 0.3, 0.05) < 0.8 for n in range(size + 1, size + 10))


def test_six_gained_items_are_the_fewest_that_can_be_significant() -> None:
    # 2 / 2**5 = 0.0625 and 2 / 2**6 = 0.03125.
    assert required_n(1.0, 0.0, 0.05, 0.99) == 6


def test_no_size_is_given_beyond_the_limit() -> None:
    size = required_n(0.2, 0.05, 0.01, 0.9)
    assert size is not None
    assert required_n(0.2, 0.05, 0.01, 0.9, limit=size) == size
    assert required_n(0.2, 0.05, 0.01, 0.9, limit=size - 1) is None
    assert required_n(0.1, 0.1, 0.01, 0.9, limit=2000) is None


def test_one_item_is_a_limit_and_reaches_nothing() -> None:
    assert required_n(1.0, 0.0, 0.5, 0.8, limit=1) is None
    assert required_n(1.0, 0.0, 0.5, 0.8) == 3


def test_where_something_begins_to_hold_is_found_to_the_item() -> None:
    for first in range(1, 40):
        assert crossing(lambda n, first=first: n >= first, 1000) == first
    assert crossing(lambda _: False, 1000) == 1000


def test_importing_the_module_imports_no_slow_library() -> None:
    code = "import sys, reviews.statistics.mcnemar; print(sorted({'scipy', 'statsmodels', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("table", "p"),
    [
        # The lady tasting tea (Fisher 1935): 17 of 70 ways.
        ((3, 4, 1, 4), 0.24285714),
        # Convictions of twins (Fisher 1962), in the help page of R's fisher.test: p = 0.0004652.
        ((10, 13, 2, 17), 0.0004652),
        ((0, 5, 0, 7), 1.0),
        ((0, 0, 3, 9), 1.0),
    ],
)
def test_fisher_one_sided(table: tuple[int, int, int, int], p: float) -> None:
    from scipy.stats import fisher_exact

    hits, n, other, of = table
    assert fisher_exact_above(*table) == pytest.approx(p, rel=1e-4)
    again = fisher_exact([[hits, n - hits], [other, of - other]], alternative="greater")
    assert fisher_exact_above(*table) == pytest.approx(float(again.pvalue), rel=1e-9)  # pyright: ignore[reportAttributeAccessIssue]


def test_fisher_refuses_more_hits_than_items() -> None:
    with pytest.raises(ValueError, match="expected at most as many hits"):
        fisher_exact_above(4, 3, 0, 1)
