"""Paired means, ranks and tables: R's published examples, closed forms, statsmodels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm, wilcoxon
from scipy.stats import t as student
from statsmodels.stats.contingency_tables import SquareTable
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import DescrStatsW

from reviews.statistics.paired_continuous import (
    bowker,
    detectable_dz,
    paired_means,
    paired_t_power,
    required_pairs,
    sign_test,
    wilcoxon_p,
)

# Student 1908, R's data set `sleep`: extra hours of sleep of ten patients under two drugs.
DRUG_1 = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
DRUG_2 = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
# Hollander and Wolfe 1973, 29f, in R's help page of wilcox.test: V = 40.
FIRST = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
SECOND = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
SCORES = st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=3, max_size=30)


def test_the_paired_t_test_is_that_of_r_on_students_own_data() -> None:
    """R: ``t.test(sleep$extra[11:20], sleep$extra[1:10], paired = TRUE)``."""
    means = paired_means(DRUG_1, DRUG_2)
    assert means.t == pytest.approx(4.0621, abs=5e-5)
    assert means.p == pytest.approx(0.002833, abs=5e-7)
    assert means.difference == pytest.approx(1.58)
    assert means.interval == pytest.approx((0.7001142, 2.4598858), abs=5e-7)
    assert means.dz == pytest.approx(4.0621 / math.sqrt(10), abs=5e-5)
    assert 0.7 < means.bootstrap[0] < means.difference < means.bootstrap[1] < 2.46


def test_wilcoxon_is_that_of_r_and_of_counting() -> None:
    """R: ``wilcox.test(x, y, paired = TRUE, alternative = "greater")`` prints 0.01953; that is 10 of 512 outcomes."""
    assert wilcoxon_p(FIRST, SECOND) == pytest.approx(2 * 10 / 512)
    # Ten items that all rose by different amounts: the most extreme of 2**10 outcomes, both sides.
    assert wilcoxon_p([0] * 10, list(range(1, 11))) == pytest.approx(2 / 1024)
    assert wilcoxon_p([1, 2, 3], [1, 2, 3]) == 1.0


@pytest.mark.parametrize(("count", "method"), [(50, "exact"), (51, "approx")])
def test_wilcoxon_is_exact_for_up_to_fifty_items(count: int, method: Any) -> None:
    after = [place if place % 3 else -place for place in range(1, count + 1)]
    theirs: Any = wilcoxon(after, correction=True, method=method)
    assert wilcoxon_p([0] * count, after) == pytest.approx(float(theirs.pvalue), rel=1e-12)


def test_wilcoxon_with_ties_is_the_normal_approximation_by_hand() -> None:
    before, after = [0] * 8, [1, 1, 1, 2, 2, -1, 3, 3]
    # Sizes 1 1 1 1 2 2 3 3: ranks 2.5 x 4, 5.5 x 2, 7.5 x 2; the one that fell has 2.5.
    rose, mean = 36 - 2.5, 18.0
    variance = 8 * 9 * 17 / 24 - (4**3 - 4 + 2 * (2**3 - 2)) / 48
    z = (rose - mean - 0.5) / math.sqrt(variance)
    assert wilcoxon_p(before, after) == pytest.approx(2 * float(norm.sf(z)), rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(SCORES)
def test_paired_means_are_those_of_statsmodels(pairs: list[tuple[int, int]]) -> None:
    before, after = [float(a) for a, _ in pairs], [float(b) for _, b in pairs]
    differences = np.subtract(after, before)
    if differences.std() == 0:
        return
    means = paired_means(before, after)
    theirs = DescrStatsW(differences)
    t, p, _ = theirs.ttest_mean(0)
    assert means.t == pytest.approx(float(t), rel=1e-9, abs=1e-12)
    assert means.p == pytest.approx(float(p), rel=1e-9)
    assert means.interval == pytest.approx(theirs.tconfint_mean(0.05), rel=1e-9, abs=1e-12)
    back = paired_means(after, before)
    assert (back.difference, back.d, back.dz) == pytest.approx((-means.difference, -means.d, -means.dz))
    assert back.wilcoxon_p == pytest.approx(means.wilcoxon_p, rel=1e-9)


def test_a_difference_without_any_spread_is_certain_and_no_difference_is_nothing() -> None:
    same = paired_means([1, 2, 3], [1, 2, 3])
    assert (same.t, same.p, same.d, same.dz, same.wilcoxon_p) == (0.0, 1.0, 0.0, 0.0, 1.0)
    shifted = paired_means([1, 2, 3], [2, 3, 4])
    assert (shifted.t, shifted.p, shifted.dz, shifted.d) == (math.inf, 0.0, math.inf, 1.0)
    assert shifted.bootstrap == (1.0, 1.0)


def test_a_tail_of_t_that_no_float_holds_keeps_its_logarithm() -> None:
    n = 2000
    after = [1 + 1e-3 * (place % 3 - 1) for place in range(n)]
    means = paired_means([0.0] * n, after)
    assert means.p == 0.0 and -8000 < means.log10_p < -300
    # The same series, where the float still holds the value: log10 of scipy's own tail.
    near = paired_means([0.0] * 300, [1 + (0.9 if place % 2 else -0.9) for place in range(300)])
    assert near.log10_p == pytest.approx(math.log10(2 * float(student.sf(near.t, 299))), rel=1e-9)


def test_the_series_of_the_far_tail_is_the_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    from reviews.statistics import paired_continuous

    class Underflows:
        @staticmethod
        def sf(*_: float) -> float:
            return 0.0

    near = 2 * float(student.sf(12.0, 29))
    monkeypatch.setattr("scipy.stats.t", Underflows)
    far = paired_continuous._log_two_sided_t(12.0, 29)  # pyright: ignore[reportPrivateUsage]
    assert far == pytest.approx(math.log(near), rel=1e-9)


def test_cohens_d_has_the_sign_of_its_names() -> None:
    # Variances 1 and 4: 3 / sqrt(2.5).
    assert paired_means([1, 2, 3], [3, 5, 7]).d == pytest.approx(3 / math.sqrt(2.5))
    assert paired_means([3, 5, 7], [1, 2, 3]).d == pytest.approx(-3 / math.sqrt(2.5))


def test_the_sign_test_counts_and_looks_at_no_size() -> None:
    assert sign_test([0] * 8, [5, 1, 1, 9, 2, 1, -1, 0]) == (6, 1, 1, pytest.approx(16 / 128))
    assert sign_test([1, 1], [1, 1]).p == 1.0


def test_bowker_by_hand() -> None:
    table = [[10, 7, 1], [2, 10, 6], [4, 0, 10]]
    # (7-2)^2/9 + (1-4)^2/5 + (6-0)^2/6
    result = bowker(table)
    assert (result.chi2, result.df) == (pytest.approx(25 / 9 + 9 / 5 + 6), 3)
    # chi-square with 3 degrees of freedom: erfc(sqrt(x/2)) + sqrt(2x/pi) exp(-x/2).
    x = result.chi2
    closed = math.erfc(math.sqrt(x / 2)) + math.sqrt(2 * x / math.pi) * math.exp(-x / 2)
    assert result.p == pytest.approx(closed, rel=1e-12)
    theirs: Any = SquareTable(np.array(table, float), shift_zeros=False).symmetry(method="bowker")
    assert (result.chi2, result.p) == pytest.approx((float(theirs.statistic), float(theirs.pvalue)))


def test_bowker_leaves_empty_pairs_out_and_is_mcnemar_for_two_categories() -> None:
    assert bowker([[5, 0, 3], [0, 5, 0], [1, 0, 5]]) == (1.0, 1, pytest.approx(math.erfc(math.sqrt(0.5))))
    assert bowker([[9, 57], [2, 9]]).chi2 == pytest.approx(55**2 / 59)
    assert bowker([[3, 0], [0, 3]]) == (0, 0, 1.0)
    # Cells that are equal and not empty are as symmetric as can be, and count.
    assert bowker([[3, 4], [4, 3]]) == (0, 1, 1.0)
    for bad in ([[1]], [[1, 2]], [[1, -2], [0, 1]]):
        with pytest.raises(ValueError, match="square"):
            bowker(bad)


@settings(max_examples=30, deadline=None)
@given(st.integers(3, 200), st.floats(0.05, 1.5), st.sampled_from([0.01, 0.05]))
def test_power_of_the_t_test_is_that_of_statsmodels(n: int, dz: float, alpha: float) -> None:
    theirs = float(TTestPower().power(dz, n, alpha))
    if math.isnan(theirs):
        return
    assert paired_t_power(n, dz, alpha) == pytest.approx(theirs, abs=1e-8)


def test_the_detectable_difference_is_where_the_power_is_reached() -> None:
    dz = detectable_dz(40, 0.05, 0.8)
    assert paired_t_power(40, dz, 0.05) == pytest.approx(0.8, abs=1e-6)
    assert dz == pytest.approx(float(TTestPower().solve_power(None, 40, 0.05, 0.8)), rel=1e-6)
    assert dz == pytest.approx(0.4544, abs=2e-4)


def test_the_required_number_of_pairs_is_the_first_that_reaches_the_power() -> None:
    # The textbook's figure for d_z = 0.5, alpha 0.05, power 0.8: 34 pairs.
    assert required_pairs(0.5, 0.05, 0.8) == 34
    assert paired_t_power(33, 0.5, 0.05) < 0.8 <= paired_t_power(34, 0.5, 0.05)
    with pytest.raises(ValueError, match="expected dz other than 0"):
        required_pairs(0.0, 0.05, 0.8)


@pytest.mark.parametrize("bad", [([1.0], [1.0]), ([1.0, 2.0], [1.0]), ([1.0, math.nan], [1.0, 2.0])])
def test_what_is_no_pairs_of_numbers_is_refused(bad: tuple[list[float], list[float]]) -> None:
    for test in (paired_means, wilcoxon_p, sign_test):
        with pytest.raises(ValueError, match=r"pairs|finite"):
            test(*bad)


@pytest.mark.parametrize("bad", [{"n": 1}, {"alpha": 0.0}, {"alpha": 1.0}, {"dz": math.nan}, {"dz": math.inf}])
def test_a_power_that_means_nothing_is_refused(bad: dict[str, Any]) -> None:
    good: dict[str, Any] = {"n": 2, "dz": 0.5, "alpha": 0.05}
    assert 0 < paired_t_power(**good) < 1
    with pytest.raises(ValueError, match="expected n >= 2"):
        paired_t_power(**good | bad)


@pytest.mark.parametrize("power", [0.0, 0.05, 1.0])
def test_a_power_that_no_test_has_or_every_test_has_is_refused(power: float) -> None:
    """No size reaches certainty, and any size the significance level."""
    with pytest.raises(ValueError, match="expected dz other than 0"):
        required_pairs(0.5, 0.05, power)
    with pytest.raises(ValueError, match=r"must lie between alpha 0\.05 and 1"):
        detectable_dz(40, 0.05, power)


def test_an_effect_no_one_could_pay_to_find_is_said_to_be_one() -> None:
    with pytest.raises(ValueError, match="more than ten million items"):
        required_pairs(0.0005, 0.05, 0.8)
