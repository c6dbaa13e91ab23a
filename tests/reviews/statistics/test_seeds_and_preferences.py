"""Several seeds and pairwise preferences: closed forms, the bootstrap's exact variance, logistic regression."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.stats import binom
from scipy.stats import t as student

from reviews.statistics.seed_variance import over_seeds
from reviews.statistics.win_rate import win_rate


def variance_of_the_crossed_bootstrap(gains: Any) -> float:
    """Var of the mean when rows and columns are drawn independently: weights have covariance 1(i=k) - 1/size."""
    seeds, n = gains.shape
    total = 0.0
    rows, columns = np.eye(seeds) + 1 - 1 / seeds, np.eye(n) + 1 - 1 / n
    total = float(np.einsum("ik,jl,ij,kl->", rows, columns, gains, gains)) / (seeds * n) ** 2
    return total - float(gains.mean()) ** 2


def test_one_seed_is_the_bootstrap_over_items() -> None:
    gains = [1] * 12 + [0] * 28
    summary = over_seeds([[0] * 40], [gains])
    exact = [float(binom.ppf(end, 40, 0.3)) / 40 for end in (0.025, 0.975)]
    assert summary.interval == pytest.approx(exact, abs=1.001 / 40)
    assert summary.seed_interval is None and summary.variance_seeds == 0.0
    assert summary.variance_items == pytest.approx(float(np.var(gains, ddof=1)))


def test_the_interval_over_items_and_seeds_has_the_width_of_its_exact_variance() -> None:
    rng = np.random.default_rng(3)
    gains = rng.normal(0, 1, (6, 1)) * 0.5 + rng.normal(0, 1, (1, 50)) + rng.normal(0, 0.3, (6, 50)) + 0.4
    summary = over_seeds(np.zeros((1, 50)).tolist(), gains.tolist())
    width = 2 * 1.959964 * math.sqrt(variance_of_the_crossed_bootstrap(gains))
    assert summary.interval[1] - summary.interval[0] == pytest.approx(width, rel=0.05)
    # Items alone, as if the seeds were no sample: too narrow.
    assert width > 1.3 * 2 * 1.959964 * float(gains.mean(axis=0).std()) / math.sqrt(50)


def test_the_interval_of_seeds_alone_is_students() -> None:
    candidate = [[1, 0, 1, 1], [0, 0, 1, 0], [1, 1, 1, 1]]
    summary = over_seeds([[0, 0, 0, 0]] * 3, candidate)
    assert summary.per_seed == (0.75, 0.25, 1.0)
    means = np.array(summary.per_seed)
    half = float(student.ppf(0.975, 2)) * means.std(ddof=1) / math.sqrt(3)
    assert summary.seed_interval == pytest.approx((means.mean() - half, means.mean() + half))
    assert summary.difference == pytest.approx(2 / 3)


def test_the_components_are_those_of_the_analysis_of_variance() -> None:
    # Rows differ by 2 (seeds), columns by 1 (items), nothing else: 2 and 0.5 are the variances of two values.
    summary = over_seeds([[0, 0]], [[0, 1]])
    assert summary.variance_rest == 0.0
    both = over_seeds([[0, 0], [0, 0]], [[0, 1], [2, 3]])
    assert (both.variance_items, both.variance_seeds, both.variance_rest) == pytest.approx((0.5, 2.0, 0.0))
    # By hand: mean squares 26 between items, 0 between seeds, 2 left.
    mixed = over_seeds([[0, 0, 0]], [[0, 4, 8], [2, 2, 8]])
    assert (mixed.variance_items, mixed.variance_seeds, mixed.variance_rest) == pytest.approx((12.0, 0.0, 2.0))
    # All in the interaction: neither seeds nor items differ in the mean.
    crossed = over_seeds([[0, 0], [0, 0]], [[0, 1], [1, 0]])
    assert (crossed.variance_items, crossed.variance_seeds, crossed.variance_rest) == pytest.approx((0, 0, 1.0))


def test_seeds_that_do_not_fit_are_refused() -> None:
    for reference, candidate in (([[0, 0]], []), ([[0, 0]] * 2, [[1, 1]] * 3), ([[0, 0]], [[1]]), ([[0]], [[1]])):
        with pytest.raises(ValueError, match="expected one reference seed"):
            over_seeds(reference, candidate)


def test_without_differences_in_length_the_controlled_rate_is_the_raw_one() -> None:
    rate = win_rate([1] * 70 + [0] * 30, [0] * 100)
    assert (rate.rate, rate.length_coefficient) == (0.7, 0.0)
    assert rate.controlled == pytest.approx(0.7, abs=1e-3)
    assert rate.interval == pytest.approx((0.6042, 0.7811), abs=5e-5)


def test_a_judge_that_prefers_length_gives_no_credit_for_it() -> None:
    """The longer answer always wins, and the candidate is longer on 80 of 100: at equal length nothing is won."""
    longer = [*range(1, 81), *range(-20, 0)]
    rate = win_rate([1.0 if number > 0 else 0.0 for number in longer], longer)
    assert rate.rate == 0.8 and rate.length_coefficient > 2
    assert abs(rate.controlled - 0.5) < 0.1


def test_a_gain_that_is_not_length_stays() -> None:
    rng = np.random.default_rng(5)
    longer = [float(x) for x in rng.normal(30, 20, 400)]
    won = [float(x) for x in rng.random(400) < 0.75]
    rate = win_rate(won, longer)
    assert rate.controlled == pytest.approx(0.75, abs=0.08)
    # Statsmodels without the priors comes to nearly the same on this many items.
    x = np.tanh(np.array(longer) / np.std(longer))
    theirs = sm.GLM(np.array(won), sm.add_constant(x), family=sm.families.Binomial()).fit()
    assert rate.controlled == pytest.approx(1 / (1 + math.exp(-theirs.params[0])), abs=0.02)


def test_all_won_or_all_tied_stays_finite() -> None:
    assert 0.97 < win_rate([1.0] * 20, list(range(20))).controlled < 1
    assert win_rate([0.5] * 10, [3, -3] * 5).controlled == pytest.approx(0.5)
    with pytest.raises(ValueError, match="expected a length for each"):
        win_rate([2.0], [0.0])
