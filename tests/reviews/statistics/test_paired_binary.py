"""McNemar by rule, p-values without underflow, lift by resampling: published figures, exact fractions, scipy."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from statsmodels.stats.contingency_tables import mcnemar as of_statsmodels

from reviews.statistics.mcnemar import cohens_h, exact_mcnemar, wilson
from reviews.statistics.paired_binary import effect_word, is_non_inferior, lift, log_exact_mcnemar


def test_figures_of_a_published_evaluation_whose_label_was_wrong() -> None:
    """57 gained and 2 lost: the statistics are right; the scorer was not admitted."""
    assert exact_mcnemar(57, 2) == pytest.approx(6.1e-15, rel=1e-2)
    assert wilson(3, 10) == pytest.approx((0.108, 0.603), abs=5e-4)
    assert cohens_h(treatment=0.78, baseline=0.15) == pytest.approx(1.37, abs=5e-3)


@given(st.integers(0, 400), st.integers(0, 400))
def test_the_logarithm_is_that_of_the_p_value_of_statsmodels(gained: int, lost: int) -> None:
    if gained + lost == 0:
        assert log_exact_mcnemar(0, 0) == 0.0
        return
    theirs: Any = of_statsmodels([[9, lost], [gained, 9]], exact=True)
    assert exact_mcnemar(gained, lost) == pytest.approx(float(theirs.pvalue), rel=1e-9, abs=1e-300)
    assert log_exact_mcnemar(gained, lost) == pytest.approx(math.log(float(theirs.pvalue)), abs=1e-8)


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


@pytest.mark.parametrize(("gained", "lost"), [(-1, 0), (0, -1)])
def test_negative_counts_are_refused(gained: int, lost: int) -> None:
    for test in (exact_mcnemar, log_exact_mcnemar):
        with pytest.raises(ValueError, match="expected counts"):
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
    assert cohens_h(treatment=0.15, baseline=0.78) == pytest.approx(-1.37, abs=5e-3)


@pytest.mark.parametrize(("gained", "n"), [(30, 120), (5, 40)])
def test_the_interval_of_a_lift_is_that_of_the_binomial(gained: int, n: int) -> None:
    result = lift([0] * n, [1] * gained + [0] * (n - gained))
    exact = [float(binom.ppf(end, n, gained / n)) / n for end in (0.025, 0.975)]
    assert result.difference == pytest.approx(gained / n)
    assert result.interval == pytest.approx(exact, abs=1.001 / n)
    assert (result.n, result.resamples, result.seed) == (n, 10_000, 42)


def test_a_lift_repeats_with_its_seed_and_turns_with_the_arms() -> None:
    before, after = [0, 1, 0, 0, 1, 1, 0, 1] * 5, [1, 1, 0, 1, 1, 0, 1, 1] * 5
    result = lift(before, after)
    assert result == lift(before, after) != lift(before, after, seed=43)
    assert lift(after, before).interval == pytest.approx((-result.interval[1], -result.interval[0]), abs=0.026)
    plain = np.random.default_rng(7).choice(np.subtract(after, before), (20_000, 40)).mean(axis=1)
    assert result.interval == pytest.approx([float(x) for x in np.percentile(plain, [2.5, 97.5])], abs=0.026)


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
