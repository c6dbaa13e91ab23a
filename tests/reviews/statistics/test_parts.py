"""Adjusted p-values, the interval over groups and the detectable effect, against closed forms and plain arithmetic."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binom
from statsmodels.stats.multitest import multipletests

from reviews.evidence.subgroups import ArmPair, each_kind, interval_over_groups, without_each_kind
from reviews.statistics.mcnemar import (
    RESAMPLES,
    benjamini_hochberg,
    cohens_h,
    exact_mcnemar,
    grouped_difference_interval,
    holm,
    mcnemar_power,
    minimum_detectable_effect,
)

PROBABILITIES = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def test_figures_of_an_experiment_that_was_published() -> None:
    # 243 and 298 of 300 with 57 gained and 2 lost; its chi-square gave 2.06e-12, the exact test is sharper here.
    assert cohens_h(treatment=298 / 300, baseline=243 / 300) == pytest.approx(0.7386, abs=5e-5)
    assert exact_mcnemar(57, 2) == pytest.approx(2 * sum(math.comb(59, k) for k in range(3)) / 2**59)
    assert exact_mcnemar(57, 2) == pytest.approx(6.14e-15, rel=1e-3)


def step_up(p_values: list[float]) -> list[float]:
    """Adjust by the definition: the smallest of p * m / rank over this rank and the ranks above it."""
    m = len(p_values)
    rising = sorted(p_values)
    return [min(1.0, *(rising[j] * m / (j + 1) for j in range(rising.index(p), m))) for p in p_values]


def test_adjusted_values_are_those_of_the_definition_by_hand() -> None:
    # Sorted .005 .01 .03 .04 times 4/1 4/2 4/3 4/4: .02 .02 .04 .04.
    assert benjamini_hochberg([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.02, 0.04, 0.04, 0.02))
    # The smaller value is pulled down by the larger one: 0.04 * 2 / 1 is more than 0.05 * 2 / 2.
    assert benjamini_hochberg([0.04, 0.05]) == pytest.approx((0.05, 0.05))
    assert benjamini_hochberg([0.9, 0.8]) == pytest.approx((0.9, 0.9))
    assert benjamini_hochberg([]) == ()


def test_family_wise_values_are_those_of_the_definition_by_hand() -> None:
    # Sorted .005 .01 .03 .04 times 4 3 2 1 is .02 .03 .06 .04, and none is below one before it.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert holm([0.9, 0.8]) == (1.0, 1.0)
    assert holm([]) == ()
    # 1/64 of three is 3/64, and 1/32 of two is exactly 1/16: no rounding between.
    assert holm([1 / 64, 1 / 32, 1.0]) == (3 / 64, 1 / 16, 1.0)
    with pytest.raises(ValueError, match="expected probabilities"):
        holm([0.5, 1.5])


@given(PROBABILITIES)
def test_family_wise_values_are_those_of_statsmodels(p_values: list[float]) -> None:
    expected: Any = multipletests(p_values, method="holm")[1]
    assert holm(p_values) == pytest.approx(list(expected), abs=1e-12)


def test_the_example_of_the_paper_rejects_four_of_fifteen() -> None:
    # Benjamini and Hochberg 1995, section 4.2: thrombolysis, q = 0.05.
    p_values = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344]
    p_values += [0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000]
    adjusted = benjamini_hochberg(p_values)
    assert [p <= 0.05 for p in adjusted] == [True] * 4 + [False] * 11
    assert adjusted[3] == pytest.approx(0.0095 * 15 / 4)


@given(PROBABILITIES)
def test_adjusted_values_are_those_of_the_definition(p_values: list[float]) -> None:
    assert benjamini_hochberg(p_values) == pytest.approx(step_up(p_values), abs=1e-12)


@given(PROBABILITIES)
def test_adjusting_keeps_the_order_and_never_lowers(p_values: list[float]) -> None:
    pairs = sorted(zip(p_values, benjamini_hochberg(p_values), strict=True))
    assert all(before <= after + 1e-15 <= 1 + 1e-12 for before, after in pairs)
    assert [after for _, after in pairs] == sorted(after for _, after in pairs)


@pytest.mark.parametrize("p_values", [[-0.1], [1.1, 0.5], [math.nan]])
def test_what_is_no_probability_cannot_be_adjusted(p_values: list[float]) -> None:
    with pytest.raises(ValueError, match="probabilities"):
        benjamini_hochberg(p_values)


@pytest.mark.parametrize(("gained", "n"), [(30, 120), (3, 20), (50, 100)])
def test_with_one_item_a_group_the_interval_is_that_of_the_binomial(gained: int, n: int) -> None:
    # Resampled sums of zeros and ones are binomial; a quantile is off by one item at most with this many resamples.
    interval = grouped_difference_interval([1] * gained + [0] * (n - gained), [1] * n)
    assert interval is not None
    exact = [float(binom.ppf(end, n, gained / n)) / n for end in (0.025, 0.975)]
    assert interval == pytest.approx(exact, abs=1.001 / n)


def test_losses_count_against_gains() -> None:
    up = grouped_difference_interval([1] * 8 + [0] * 10 + [-1] * 2, [1] * 20)
    assert up is not None and up[0] < 0.3 < up[1]
    down = grouped_difference_interval([-1] * 8 + [0] * 10 + [1] * 2, [1] * 20)
    assert down == pytest.approx((-up[1], -up[0]), abs=0.051)


def test_whole_groups_are_drawn_so_the_size_of_a_group_changes_nothing() -> None:
    gains = [1, 0, 1, 0, 0, 1, 1, 0, 0, 1]
    assert grouped_difference_interval([5 * gain for gain in gains], [5] * 10) == grouped_difference_interval(
        gains, [1] * 10
    )


def test_alike_items_in_a_group_widen_the_interval() -> None:
    together = grouped_difference_interval([6, 0] * 10, [6] * 20)
    apart = grouped_difference_interval([1, 0] * 60, [1] * 120)
    assert together is not None and apart is not None
    assert together[1] - together[0] > 2 * (apart[1] - apart[0])


def test_groups_weigh_by_their_size() -> None:
    interval = grouped_difference_interval([9, 0], [9, 1])
    assert interval == (0.0, 1.0)
    # Six draws of equal chance: none, or all, of the large groups come with 1 / 64 each, which is less than 2.5 %.
    several = grouped_difference_interval([9, 9, 9, 0, 0, 0], [9, 9, 9, 1, 1, 1])
    assert several == pytest.approx((9 / 14, 45 / 46))


def test_the_interval_is_the_same_every_time() -> None:
    gains, sizes = [1, 0, 2, -1, 0, 1], [2, 1, 3, 1, 1, 4]
    assert grouped_difference_interval(gains, sizes) == grouped_difference_interval(gains, sizes)
    assert RESAMPLES == 9999


def test_where_all_groups_gained_alike_the_interval_is_a_point() -> None:
    assert grouped_difference_interval([2, 2, 2], [4, 4, 4]) == (0.5, 0.5)
    assert grouped_difference_interval([2], [4]) is None
    assert grouped_difference_interval([], []) is None


@pytest.mark.parametrize(("gains", "sizes"), [([1], [1, 1]), ([2, 0], [1, 1]), ([-2, 0], [1, 1]), ([0, 0], [0, 1])])
def test_impossible_groups_are_refused(gains: list[int], sizes: list[int]) -> None:
    with pytest.raises(ValueError, match="do not fit their groups"):
        grouped_difference_interval(gains, sizes)


@pytest.mark.parametrize("n", [10, 20, 60])
def test_without_losses_the_detectable_effect_is_that_of_the_binomial(n: int) -> None:
    # Nothing is lost, so the test rejects from 6 gained on: 2 / 2**6 < 0.05 < 2 / 2**5.
    def short_of(gain: float) -> float:
        return float(binom.sf(5, n, gain)) - 0.8

    exact = brentq(short_of, 1e-6, 1 - 1e-6, xtol=1e-12)
    assert minimum_detectable_effect(n, 0.0, 0.05, 0.8) == pytest.approx(exact, abs=2e-6)


@pytest.mark.parametrize(("n", "lost", "alpha", "power"), [(120, 0.03, 0.01, 0.8), (50, 0.1, 0.05, 0.9)])
def test_the_detectable_effect_is_where_power_is_reached(n: int, lost: float, alpha: float, power: float) -> None:
    least = minimum_detectable_effect(n, lost, alpha, power)
    assert least is not None
    assert mcnemar_power(n, least + lost, lost, alpha) >= power > mcnemar_power(n, least - 2e-6 + lost, lost, alpha)
    scanned = next(gain / 1000 for gain in range(1000) if mcnemar_power(n, gain / 1000 + lost, lost, alpha) >= power)
    assert scanned - 0.001 < least <= scanned


def test_an_effect_that_no_gain_reaches_is_none() -> None:
    assert minimum_detectable_effect(5, 0.0, 0.05, 0.8) is None
    assert minimum_detectable_effect(6, 0.0, 0.05, 0.8) is not None
    # The largest gain next to losses is found with this power, one smaller by the losses is not.
    assert mcnemar_power(10, 0.9, 0.1, 0.05) > 0.7 > mcnemar_power(10, 0.7, 0.1, 0.05)
    least = minimum_detectable_effect(10, 0.1, 0.05, 0.7)
    assert least is not None and 0.6 < least < 0.8


def test_a_power_that_is_met_exactly_is_reached() -> None:
    # Halfway between nothing and the largest gain, which is the first effect that is tried; and the largest itself.
    assert minimum_detectable_effect(20, 0.0, 0.05, mcnemar_power(20, 0.5, 0.0, 0.05)) == 0.5
    assert minimum_detectable_effect(10, 0.1, 0.05, mcnemar_power(10, 0.9, 0.1, 0.05)) == pytest.approx(0.8, abs=2e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(8, 150), st.floats(0, 0.2))
def test_a_larger_power_needs_a_larger_effect(n: int, lost: float) -> None:
    small, large = (minimum_detectable_effect(n, lost, 0.05, power) for power in (0.5, 0.9))
    assert large is None or (small is not None and small < large)


@pytest.mark.parametrize(
    "bad", [{"lost": 0.6}, {"lost": -0.1}, {"alpha": 0.0}, {"power": 1.0}, {"power": 0.0}, {"n": -1}]
)
def test_the_detectable_effect_refuses_impossible_input(bad: dict[str, float]) -> None:
    good = {"n": 100, "lost": 0.1, "alpha": 0.05, "power": 0.8}
    assert minimum_detectable_effect(**good)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"probabilities|alpha|power|n must not"):
        minimum_detectable_effect(**good | bad)  # pyright: ignore[reportArgumentType]


def pairs(kind: str, before: str, after: str, group: str = "") -> list[ArmPair]:
    marks = zip(before, after, strict=True)
    return [ArmPair(kind, group or f"{kind}{place}", old == "1", new == "1") for place, (old, new) in enumerate(marks)]


def test_each_kind_is_tested_and_adjusted() -> None:
    every = [*pairs("a", "000000", "111111"), *pairs("b", "000011", "000011"), *pairs("c", "110000", "001000")]
    tests = each_kind(every)
    assert [(test.part.kind, test.part.n, test.part.gained, test.part.lost) for test in tests] == [
        ("a", 6, 6, 0),
        ("b", 6, 0, 0),
        ("c", 6, 1, 2),
    ]
    assert [test.p for test in tests] == pytest.approx([2 / 64, 1, 1])
    assert [test.adjusted for test in tests] == pytest.approx([3 * 2 / 64, 1, 1])
    assert tests[2].part.gain == pytest.approx(-1 / 6)


def test_each_kind_is_left_out_once() -> None:
    every = [*pairs("a", "00", "11"), *pairs("b", "000", "001"), *pairs("c", "1", "0")]
    assert [(counts.kind, counts.n, counts.gained, counts.lost) for counts in without_each_kind(every)] == [
        ("a", 4, 1, 1),
        ("b", 3, 2, 1),
        ("c", 5, 3, 0),
    ]
    assert [counts.kind for counts in without_each_kind(every[:5])] == ["a", "b"]
    assert without_each_kind(pairs("a", "00", "11")) == ()


def test_groups_are_counted_over_kinds() -> None:
    together = [*pairs("a", "000", "111", "g"), *pairs("b", "000", "111", "g"), *pairs("a", "000", "000", "h")]
    assert interval_over_groups(together) == grouped_difference_interval([6, 0], [6, 3])
    assert interval_over_groups(pairs("a", "00", "11", "g")) is None
    mixed = [*pairs("a", "0111", "1000", "g"), *pairs("a", "11", "11", "h")]
    assert interval_over_groups(mixed) == grouped_difference_interval([-2, 0], [4, 2])
