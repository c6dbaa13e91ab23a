"""McNemar by rule, p-values without underflow, lift by resampling: published figures, exact fractions, scipy."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, chi2
from statsmodels.stats.contingency_tables import mcnemar as of_statsmodels

from reviews.statistics.mcnemar import exact_mcnemar, wilson
from reviews.statistics.paired_binary import effect_h, effect_word, is_non_inferior, lift, log_exact_mcnemar, mcnemar


def test_figures_of_a_published_evaluation_whose_label_was_wrong() -> None:
    """57 gained and 2 lost: (|57 - 2| - 1)**2 / 59 = 49.42. The statistics are right; the scorer was not admitted."""
    found = mcnemar(57, 2)
    assert found.method == "chi2"
    assert found.chi2 == pytest.approx(54**2 / 59, rel=1e-12) == pytest.approx(49.42, abs=5e-3)
    assert found.p == pytest.approx(2.06e-12, rel=5e-3)
    assert wilson(3, 10) == pytest.approx((0.108, 0.603), abs=5e-4)
    assert effect_h(reference=0.15, candidate=0.78) == pytest.approx(1.37, abs=5e-3)


def test_the_example_of_the_textbook() -> None:
    # Agresti, Categorical Data Analysis, section 10.1: 86 and 150 discordant ratings, z = -4.17.
    found = mcnemar(86, 150, continuity=False)
    assert found.chi2 == pytest.approx(64**2 / 236) == pytest.approx(4.17**2, rel=2e-3)
    assert found.p == pytest.approx(float(chi2.sf(64**2 / 236, 1)), rel=1e-9)
    assert mcnemar(86, 150).chi2 == pytest.approx(63**2 / 236)


def test_few_discordant_items_are_tested_exactly_and_many_are_not() -> None:
    assert mcnemar(20, 4).method == "exact" and mcnemar(20, 5).method == "chi2"
    # The approximation without correction gives 0.025 for 5 of 5; the exact value is 2 / 32.
    assert mcnemar(5, 0).p == pytest.approx(2 / 32)
    assert mcnemar(5, 0, exact_below=0, continuity=False).p == pytest.approx(0.02535, abs=5e-6)
    assert mcnemar(0, 0) == ("exact", 0, 0, None, 1.0, 0.0)


@given(st.integers(0, 400), st.integers(0, 400), st.booleans(), st.booleans())
def test_mcnemar_is_that_of_statsmodels(gained: int, lost: int, exact: bool, continuity: bool) -> None:
    if gained + lost == 0:
        return
    theirs: Any = of_statsmodels([[9, lost], [gained, 9]], exact=exact, correction=continuity)
    ours = mcnemar(gained, lost, exact_below=10_000 if exact else 0, continuity=continuity)
    if not exact and continuity and gained == lost:
        # Statsmodels corrects 0 to 1; there is nothing to correct where the counts are equal.
        assert ours.p == 1.0
        return
    assert ours.p == pytest.approx(float(theirs.pvalue), rel=1e-9, abs=1e-300)
    assert math.log10(ours.p) == pytest.approx(ours.log10_p, abs=1e-9)


@pytest.mark.parametrize(("gained", "lost"), [(3000, 2), (2500, 10), (40_000, 100)])
def test_a_p_value_below_every_float_keeps_its_logarithm(gained: int, lost: int) -> None:
    n = gained + lost
    counted = sum(math.comb(n, k) for k in range(lost + 1))
    exactly = (math.log(2 * counted) - n * math.log(2)) if n < 5000 else None
    assert exact_mcnemar(gained, lost) == 0.0
    log_p = log_exact_mcnemar(gained, lost)
    assert math.isfinite(log_p) and log_p < -1000
    if exactly is not None:
        assert log_p == pytest.approx(exactly, rel=1e-10)
    assert math.isfinite(mcnemar(gained, lost).log10_p) and mcnemar(gained, lost).log10_p < -300


def test_the_tail_of_the_chi_square_is_not_one_minus_something() -> None:
    # At 80 the p is 3.7e-19: 1 - cdf is exactly 0 there.
    assert 1 - float(chi2.cdf(80, 1)) == 0.0
    found = mcnemar(100, 13, continuity=False)
    assert found.chi2 is not None and found.chi2 > 66
    assert found.p == pytest.approx(math.erfc(math.sqrt(found.chi2 / 2)), rel=1e-9)
    assert found.p > 0


@pytest.mark.parametrize(("gained", "lost"), [(-1, 0), (0, -1)])
def test_negative_counts_are_refused(gained: int, lost: int) -> None:
    for test in (mcnemar, log_exact_mcnemar):
        with pytest.raises(ValueError, match="impossible"):
            test(gained, lost)


def test_effect_sizes_have_words() -> None:
    assert [effect_word(h) for h in (0.1, -0.2, 0.5, -0.79, 0.8, 1.37)] == [
        "none",
        "small",
        "medium",
        "medium",
        "large",
        "large",
    ]
    assert effect_h(reference=0.78, candidate=0.15) == pytest.approx(-1.37, abs=5e-3)


@pytest.mark.parametrize(("gained", "n"), [(30, 120), (5, 40)])
def test_the_interval_of_a_lift_is_that_of_the_binomial(gained: int, n: int) -> None:
    found = lift([0] * n, [1] * gained + [0] * (n - gained))
    exact = [float(binom.ppf(end, n, gained / n)) / n for end in (0.025, 0.975)]
    assert found.difference == pytest.approx(gained / n)
    assert found.interval == pytest.approx(exact, abs=1.001 / n)
    assert (found.n, found.resamples, found.seed) == (n, 10_000, 42)


def test_a_lift_repeats_with_its_seed_and_turns_with_the_arms() -> None:
    before, after = [0, 1, 0, 0, 1, 1, 0, 1] * 5, [1, 1, 0, 1, 1, 0, 1, 1] * 5
    found = lift(before, after)
    assert found == lift(before, after) != lift(before, after, seed=43)
    assert lift(after, before).interval == pytest.approx((-found.interval[1], -found.interval[0]), abs=0.026)
    plain = np.random.default_rng(7).choice(np.subtract(after, before), (20_000, 40)).mean(axis=1)
    assert found.interval == pytest.approx([float(x) for x in np.percentile(plain, [2.5, 97.5])], abs=0.026)


def test_a_lift_needs_pairs() -> None:
    with pytest.raises(ValueError, match="pairs"):
        lift([1, 0], [1])
    with pytest.raises(ValueError, match="pairs"):
        lift([1], [1])


def test_what_may_have_fallen_by_the_margin_is_not_non_inferior() -> None:
    assert is_non_inferior((-0.04, 0.02), 0.05)
    assert not is_non_inferior((-0.05, 0.20), 0.05)
    with pytest.raises(ValueError, match="positive"):
        is_non_inferior((0.0, 0.1), 0.0)


def test_the_exact_logarithm_is_that_of_the_fraction() -> None:
    for gained, lost in ((21, 4), (6, 0), (3, 3), (1, 0)):
        n, few = gained + lost, min(gained, lost)
        p = min(Fraction(1), Fraction(2 * sum(math.comb(n, k) for k in range(few + 1)), 2**n))
        assert log_exact_mcnemar(gained, lost) == pytest.approx(math.log(p), abs=1e-12)
