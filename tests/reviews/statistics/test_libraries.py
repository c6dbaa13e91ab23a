"""Every statistic against a library that does not share its code, over drawn inputs.

Ours stand on scipy's functions where there are some, so each is held against another one: most against statsmodels',
agreement and win rates against scikit-learn. The two intervals by resampling are held against their exact
distribution, by convolution and by enumerating every draw.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import brentq
from statsmodels.stats.anova import anova_lm
from statsmodels.stats.contingency_tables import mcnemar as mcnemar_of_statsmodels
from statsmodels.stats.descriptivestats import sign_test as sign_test_of_statsmodels
from statsmodels.stats.inter_rater import cohens_kappa as kappa_of_statsmodels
from statsmodels.stats.proportion import proportion_confint, proportion_effectsize

from reviews.statistics.agreement import cohens_kappa
from reviews.statistics.mcnemar import (
    benjamini_hochberg,
    cohens_h,
    exact_mcnemar,
    grouped_difference_interval,
    mcnemar_power,
    minimum_detectable_effect,
    resampled_ratio,
    wilson,
)
from reviews.statistics.paired_binary import lift
from reviews.statistics.paired_continuous import paired_means, sign_test, wilcoxon_p
from reviews.statistics.seed_variance import over_seeds
from reviews.statistics.win_rate import win_rate

drawn = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
PAIRS = st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=3, max_size=25)
RATED = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=3, max_size=30)


@drawn
@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_is_scipys(counts: tuple[int, int]) -> None:
    theirs = stats.binomtest(*counts).proportion_ci(0.95, method="wilson")
    assert wilson(*counts) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


@drawn
@given(st.integers(1, 10**6).flatmap(lambda n: st.tuples(st.integers(0, n) | st.floats(0, n), st.just(n))))
def test_wilson_is_statsmodels_to_the_last_bit(counts: tuple[float, int]) -> None:
    theirs: Any = proportion_confint(*counts, method="wilson")
    share = counts[0] / counts[1]
    assert wilson(*counts) == (min(theirs[0], share), max(theirs[1], share))


@drawn
@given(st.integers(0, 80), st.integers(0, 80))
def test_exact_mcnemar_is_statsmodels(gained: int, lost: int) -> None:
    theirs: Any = mcnemar_of_statsmodels([[9, lost], [gained, 9]], exact=True)
    assert exact_mcnemar(gained, lost) == pytest.approx(min(1.0, float(theirs.pvalue)), rel=1e-9)


@drawn
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_benjamini_hochberg_is_scipys(p_values: list[float]) -> None:
    theirs: Any = stats.false_discovery_control(p_values, method="bh")
    assert benjamini_hochberg(p_values) == pytest.approx(list(theirs), abs=1e-12)


@drawn
@given(st.floats(0, 1), st.floats(0, 1))
def test_cohens_h_is_statsmodels(number: float, other: float) -> None:
    assert cohens_h(number, other) == pytest.approx(float(proportion_effectsize(number, other)), abs=1e-12)


@drawn
@given(PAIRS)
def test_cohens_d_is_the_t_of_two_samples_and_dz_that_of_one(pairs: list[tuple[int, int]]) -> None:
    before, after = [float(a) for a, _ in pairs], [float(b) for _, b in pairs]
    assume(min(np.std(np.subtract(after, before)), np.std(before), np.std(after)) > 0)
    n = len(pairs)
    two_samples: Any = stats.ttest_ind(after, before)
    one_sample: Any = stats.ttest_rel(after, before)
    unpaired, paired = float(two_samples.statistic), float(one_sample.statistic)
    means = paired_means(before, after)
    assert (means.d, means.dz) == pytest.approx((unpaired * math.sqrt(2 / n), paired / math.sqrt(n)), abs=1e-9)


@drawn
@given(PAIRS)
def test_the_sign_test_is_statsmodels(pairs: list[tuple[int, int]]) -> None:
    before, after = [float(a) for a, _ in pairs], [float(b) for _, b in pairs]
    assume(before != after)
    half, p = sign_test_of_statsmodels(np.subtract(after, before), 0)
    test = sign_test(before, after)
    assert ((test.rose - test.fell) / 2, test.p) == pytest.approx((float(half), float(p)), abs=1e-12)


@drawn
@given(st.lists(st.integers(-30, 30).filter(bool), min_size=2, max_size=9, unique_by=abs))
def test_wilcoxon_without_ties_counts_every_choice_of_signs(changes: list[int]) -> None:
    """By enumeration: how many of the 2**n choices of signs are as extreme."""
    ranks = stats.rankdata(np.abs(changes))
    sums = np.array([np.dot(signs, ranks) for signs in itertools.product((0, 1), repeat=len(changes))])
    seen = float(ranks[np.array(changes) > 0].sum())
    tails = ((sums <= seen).mean(), (sums >= seen).mean())
    assert wilcoxon_p([0.0] * len(changes), changes) == pytest.approx(min(1.0, 2 * min(tails)), abs=1e-12)


@drawn
@example([(1, 1), (1, 2), (1, 3)])
@given(RATED)
def test_kappa_is_scikit_learns(pairs: list[tuple[int, int]]) -> None:
    from sklearn.metrics import cohen_kappa_score

    items, other = [a for a, _ in pairs], [b for _, b in pairs]
    assume(len({*items, *other}) > 1)
    assert cohens_kappa(items, other).kappa == pytest.approx(float(cohen_kappa_score(items, other)), abs=1e-9)


@drawn
@given(RATED)
def test_the_interval_of_kappa_is_statsmodels(pairs: list[tuple[int, int]]) -> None:
    names = sorted({rating for pair in pairs for rating in pair})
    assume(len(names) > 1)
    table = np.array([[pairs.count((a, b)) for b in names] for a in names])
    # Its variance may come out a hair below 0, and its z value divides by it.
    with np.errstate(invalid="ignore", divide="ignore"):
        theirs: Any = kappa_of_statsmodels(table)
    assume(math.isfinite(theirs.kappa_low))
    low, high = cohens_kappa([a for a, _ in pairs], [b for _, b in pairs]).interval
    assert (low, high) == pytest.approx((max(-1.0, theirs.kappa_low), min(1.0, theirs.kappa_upp)), abs=1e-6)


def _exact_quantiles(values: list[int]) -> tuple[Any, Any]:
    """Return (sums, cumulated probability) of as many draws with replacement as there are values."""
    low = min(values)
    probabilities = np.bincount(np.array(values) - low) / len(values)
    every = np.ones(1)
    for _ in values:
        every = np.convolve(every, probabilities)
    return np.arange(len(every)) + low * len(values), np.cumsum(every)


def _within(end: float, sums: Any, cumulated: Any, n: int, level: float) -> bool:
    """Return whether a resampled quantile lies where 10,000 draws can put it: 0.6 % of probability either way."""
    reach = 4 * math.sqrt(level * (1 - level) / 10_000)
    first = sums[np.searchsorted(cumulated, level - reach)] / n
    last = sums[min(np.searchsorted(cumulated, level + reach), len(sums) - 1)] / n
    return bool(first - 1e-9 <= end <= last + 1e-9)


@drawn
@given(st.lists(st.integers(-3, 3), min_size=4, max_size=25))
def test_the_interval_of_a_lift_is_that_of_the_exact_distribution(gains: list[int]) -> None:
    assume(len(set(gains)) > 1)
    n = len(gains)
    result = lift([0] * n, gains)
    sums, cumulated = _exact_quantiles(gains)
    assert result.difference == pytest.approx(sum(gains) / n)
    assert _within(result.interval[0], sums, cumulated, n, 0.025)
    assert _within(result.interval[1], sums, cumulated, n, 0.975)
    # The bootstrap over groups of one item is the same.
    signs = [int(np.sign(gain)) for gain in gains]
    grouped = grouped_difference_interval(signs, [1] * n)
    sums, cumulated = _exact_quantiles(signs)
    assert grouped is not None and _within(grouped[0], sums, cumulated, n, 0.025)
    assert _within(grouped[1], sums, cumulated, n, 0.975)


# Its solver then takes another one, to the same weights.
@pytest.mark.filterwarnings("ignore:Line search of Newton solver:sklearn.exceptions.ConvergenceWarning")
@drawn
@example([(0.5, 0), (0.5, 0), (0.5, 1), (0.0, 0), (0.5, 0), (1.0, 0)])
@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.integers(-90, 90)), min_size=4, max_size=60))
def test_the_controlled_win_rate_is_scikit_learns_logistic_regression(pairs: list[tuple[float, int]]) -> None:
    """Its penalty is that of a normal prior of 1, so columns are scaled by our priors; a tie is half of each row."""
    from sklearn.linear_model import LogisticRegression

    won, longer = np.array([a for a, _ in pairs]), np.array([float(b) for _, b in pairs])
    assume(longer.std() > 0 and 0 < won.mean() < 1)
    x = np.tanh(longer / longer.std())
    design = np.column_stack([np.full(len(x), 10.0), 5 * x])
    model = LogisticRegression(C=1.0, fit_intercept=False, solver="newton-cholesky", tol=1e-8, max_iter=1000)
    weights = np.concatenate([won, 1 - won])
    is_positive = weights > 0
    model.fit(
        np.vstack([design, design])[is_positive],
        np.repeat([1, 0], len(x))[is_positive],
        sample_weight=weights[is_positive],
    )
    first, second = model.coef_[0]
    rate = win_rate([float(item) for item in won], [float(item) for item in longer])
    assert rate.controlled == pytest.approx(1 / (1 + math.exp(-10 * first)), abs=1e-4)
    assert rate.length_coefficient == pytest.approx(5 * second, abs=2e-3)
    low, high = rate.interval
    z = 1.959963984540054
    for end in (low, high):
        assert abs(rate.rate - end) == pytest.approx(z * math.sqrt(end * (1 - end) / len(x)), abs=1e-6)


@drawn
@example([[0, 1, 0, 2], [4, 5, 3, 6], [9, 8, 9, 9]])
@given(st.lists(st.lists(st.integers(-4, 4), min_size=4, max_size=4), min_size=2, max_size=4))
def test_components_over_seeds_are_the_mean_squares_of_statsmodels(gains: list[list[int]]) -> None:
    table = np.array(gains, float)
    seeds, n = table.shape
    of_seed, of_item = np.repeat([f"s{i}" for i in range(seeds)], n), np.tile([f"i{i}" for i in range(n)], seeds)
    data = pd.DataFrame({"gain": table.ravel(), "seed": of_seed, "item": of_item})
    squares: Any = anova_lm(sm.OLS.from_formula("gain ~ C(seed) + C(item)", data).fit())["mean_sq"]
    rest = float(squares["Residual"])
    summary = over_seeds([[0.0] * n], gains, resamples=10)
    assert summary.variance_rest == pytest.approx(rest, abs=1e-9)
    assert summary.variance_seeds == pytest.approx(max(0.0, (float(squares["C(seed)"]) - rest) / n), abs=1e-9)
    assert summary.variance_items == pytest.approx(max(0.0, (float(squares["C(item)"]) - rest) / seeds), abs=1e-9)
    means = table.mean(axis=1)
    if means.std() > 1e-12:
        theirs = stats.ttest_1samp(means, 0).confidence_interval(0.95)
        assert summary.seed_interval == pytest.approx((theirs.low, theirs.high), abs=1e-9)


@settings(drawn, max_examples=4)
@given(st.lists(st.lists(st.integers(-3, 3), min_size=4, max_size=4), min_size=3, max_size=3))
def test_the_interval_over_items_and_seeds_is_that_of_all_draws(gains: list[list[int]]) -> None:
    table = np.array(gains, float)
    seeds, n = table.shape
    of_seeds, of_items = (
        np.array([np.bincount(draw, minlength=size) for draw in itertools.product(range(size), repeat=size)])
        for size in (seeds, n)
    )
    every = np.sort((of_seeds @ table @ of_items.T).ravel() / (seeds * n))
    low, high = over_seeds([[0.0] * n], gains).interval
    for end, level in ((low, 0.025), (high, 0.975)):
        reach = 4 * math.sqrt(level * (1 - level) / 10_000)
        first, last = (
            every[int((level - reach) * len(every))],
            every[min(len(every) - 1, int((level + reach) * len(every)))],
        )
        assert first - 1e-9 <= end <= last + 1e-9


def _power(n: int, gained: float, lost: float, alpha: float) -> float:
    """Add up scipy's trinomial probabilities of the outcomes that statsmodels' exact test rejects."""
    total = 0.0
    for up, down in itertools.product(range(n + 1), repeat=2):
        if 0 < up + down <= n:
            p = stats.multinomial.pmf([up, down, n - up - down], n, [gained, lost, 1 - gained - lost])
            tested: Any = mcnemar_of_statsmodels([[0, down], [up, 0]], exact=True)
            total += float(p) if float(tested.pvalue) < alpha else 0.0
    return total


@settings(drawn, max_examples=8)
@given(st.integers(1, 16), st.integers(0, 9), st.integers(0, 9), st.sampled_from([0.01, 0.05, 0.2]))
def test_the_power_of_mcnemar_is_scipys_multinomial_over_statsmodels_test(
    n: int, gained: int, lost: int, alpha: float
) -> None:
    assume(gained + lost > 0)
    rates = gained / 20, lost / 20
    assert mcnemar_power(n, *rates, alpha) == pytest.approx(_power(n, *rates, alpha), abs=1e-9)


@pytest.mark.parametrize(
    ("n", "gained", "lost", "alpha"),
    [(333, 0.2, 0.15, 1e-6), (5000, 0.21, 0.18, 0.01), (5000, 0.5, 0.5, 0.05), (20_000, 0.03, 0.04, 1e-10)],
)
def test_the_power_of_many_items_is_that_of_scipys_binomials(n: int, gained: float, lost: float, alpha: float) -> None:
    counts = np.arange(n + 1)
    most = stats.binom.ppf(alpha / 2, counts, 0.5) - 2
    for _ in range(3):
        most += 2 * stats.binom.cdf(most + 1, counts, 0.5) < alpha
    share = gained / (gained + lost)
    rejected = stats.binom.cdf(most, counts, share) + stats.binom.cdf(most, counts, 1 - share)
    power = float(np.sum(stats.binom.pmf(counts, n, gained + lost) * rejected))
    assert mcnemar_power(n, gained, lost, alpha) == pytest.approx(power, abs=1e-9)
    assert 0 < power < 1


@pytest.mark.parametrize("count", [2, 40, 1700])
def test_an_interval_from_drawing_pairs_is_that_of_scipys_bootstrap(count: int) -> None:
    generator = np.random.default_rng(count)
    above, below = generator.integers(-5, 6, count).astype(float), generator.integers(5, 9, count).astype(float)

    def ratio(value: Any, other: Any, axis: int) -> Any:
        return value.sum(axis=axis) / other.sum(axis=axis)

    # In batches as ours are: each draws from where the one before ended.
    result: Any = stats.bootstrap(
        (above, below), ratio, paired=True, vectorized=True, n_resamples=999, batch=max(1, 1_000_000 // count),
        method="percentile", rng=np.random.default_rng(7),
    )  # fmt: skip
    expected = result.confidence_interval
    interval = resampled_ratio(above.tolist(), below.tolist(), resamples=999, seed=7)
    assert interval == pytest.approx((expected.low, expected.high), rel=1e-12)


@pytest.mark.parametrize(("n", "lost"), [(14, 0.0), (16, 0.05)])
def test_the_detectable_effect_is_a_root_of_that_power(n: int, lost: float) -> None:
    def short(gain: float) -> float:
        return _power(n, gain + lost, lost, 0.1) - 0.6

    root: Any = brentq(short, 0.01, 0.8, xtol=1e-5)
    assert minimum_detectable_effect(n, lost, 0.1, 0.6) == pytest.approx(float(root), abs=1e-4)
