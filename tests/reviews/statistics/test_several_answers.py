"""Several answers to each item: the sign-flip test, the clustered interval and pass@k against other implementations."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import permutation_test

from reviews.evidence.subgroups import ArmPair, count_pairs, pair_items
from reviews.statistics.mcnemar import (
    exact_mcnemar,
    exact_sign_flip,
    mcnemar_power,
    mean_change_interval,
    paired_difference_interval,
)
from reviews.statistics.pass_at_k import pass_at_k
from specs.stages.base.artifacts import Item

CHANGES = st.lists(st.integers(-4, 4), min_size=2, max_size=9)


def quarters(changes: list[int]) -> list[Fraction]:
    return [Fraction(change, 4) for change in changes]


@given(CHANGES)
def test_the_p_of_shares_is_that_of_scipy(changes: list[int]) -> None:
    again: Any = permutation_test((np.array(changes) / 4,), np.mean, permutation_type="samples", n_resamples=10_000)
    assert exact_sign_flip(quarters(changes)) == pytest.approx(float(again.pvalue))


@given(CHANGES)
def test_the_interval_is_that_of_regression_with_errors_clustered_by_item(changes: list[int]) -> None:
    # Four answers to each item, and one item that changed by 1 and one by -1.
    per_item = [*changes, 4, -4]
    answers = np.array([sign for change in per_item for sign in split(change)], float)
    items = np.repeat(np.arange(len(per_item)), 4)
    result = sm.OLS(answers, np.ones(len(answers))).fit(cov_type="cluster", cov_kwds={"groups": items})
    # Statsmodels corrects for the number of clusters; Wald's interval of shares does not.
    n, clusters = len(answers), len(per_item)
    correction = math.sqrt(clusters / (clusters - 1) * (n - 1) / (n - 1))
    half = 1.959963984540054 * float(result.bse[0]) / correction
    mean = float(result.params[0])
    assert mean_change_interval(quarters(changes)) == pytest.approx((max(-1, mean - half), min(1, mean + half)))


def split(change: int) -> list[float]:
    """Return four differences of single answers that add up to a change: as unequal as they can be."""
    return [math.copysign(1.0, change)] * abs(change) + [0.0] * (4 - abs(change))


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 9))
def test_whole_changes_have_the_interval_and_the_p_of_single_answers(gained: int, lost: int, tied: int) -> None:
    changes = [1] * gained + [-1] * lost + [0] * tied
    assert mean_change_interval(changes) == pytest.approx(paired_difference_interval(gained, lost, len(changes)))
    assert exact_sign_flip(changes) == exact_mcnemar(gained, lost)


@pytest.mark.parametrize("changes", [[], [Fraction(5, 4)]])
def test_changes_that_cannot_be_are_refused(changes: list[Fraction]) -> None:
    with pytest.raises(ValueError, match="expected changes from -1 to 1"):
        mean_change_interval(changes)


def test_by_hand_on_three_items() -> None:
    # 1/2, 1/4 and 1/4: of eight choices of signs the two that are all alike reach the sum.
    pairs = [ArmPair("a", f"g{n}", Fraction(0), Fraction(right, 4)) for n, right in enumerate((2, 1, 1))]
    counts = count_pairs(pairs)
    assert (counts.n, counts.gained, counts.lost, counts.gain, counts.p) == (3, 3, 0, Fraction(1, 3), 0.25)


def test_many_items_are_counted_in_time() -> None:
    draw = random.Random(1)
    assert exact_sign_flip([Fraction(draw.randint(-3, 4), 8) for _ in range(2000)]) < 0.01


def item(id: str) -> Item:
    return Item(id=id, group=id, kind="a", prompt="p", constraint={})


def test_answers_are_brought_together_by_item() -> None:
    answers = [(item("x"), False, True), (item("y"), True, True), (item("x"), False, False), (item("y"), True, False)]
    assert pair_items(answers) == (
        ArmPair("a", "x", Fraction(0), Fraction(1, 2)),
        ArmPair("a", "y", Fraction(1), Fraction(1, 2)),
    )


@given(st.integers(1, 6), st.data())
def test_pass_at_k_counts_choices_of_answers(n: int, data: st.DataObject) -> None:
    right, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    choices = list(itertools.combinations([place < right for place in range(n)], k))
    assert pass_at_k(n, right, k) == Fraction(sum(map(any, choices)), len(choices))


def simulated(
    answers_per_item: int, seed: int, gain: float, runs: int = 400, n: int = 60
) -> tuple[float, float, float]:
    """Return how often the test rejects, the interval over items holds the gain, and one over answers does.

    Items have rates of their own (Beta(1, 1)); a trained model answers some of them, drawn anew, always right.
    """
    rng = np.random.default_rng(seed)
    rejected, covered, naive = 0, 0, 0
    for _ in range(runs):
        rates = rng.beta(0.3, 0.3, n)
        learned = rng.random(n) < 2 * gain
        before = rng.binomial(answers_per_item, rates)
        after = rng.binomial(answers_per_item, np.where(learned, 1.0, rates))
        changes = [Fraction(int(change), answers_per_item) for change in after - before]
        rejected += exact_sign_flip(changes) < 0.05
        low, high = mean_change_interval(changes)
        covered += low <= gain <= high
        gained, lost = (int(np.clip(sign * (after - before), 0, None).sum()) for sign in (1, -1))
        low, high = paired_difference_interval(gained, lost, answers_per_item * n)
        naive += low <= gain <= high
    return rejected / runs, covered / runs, naive / runs


def test_the_test_holds_its_level_and_an_interval_that_takes_answers_for_items_does_not() -> None:
    level, covered, _ = simulated(8, 1, 0.0)
    assert level <= 0.07 and covered >= 0.92
    _, covered, naive = simulated(8, 2, 0.15)
    # The negative control: eight answers to an item are not eight items.
    assert covered >= 0.92 and naive < 0.85


def test_the_forecast_of_single_answers_is_a_lower_bound() -> None:
    # By single answers: of an item with rate r that is not learned (1 - r) r change each way, of a learned one 1 - r.
    gain, flips = 0.15, 0.3 * 0.3 / (0.6 * 1.6)
    gained, lost = 2 * gain * 0.5 + (1 - 2 * gain) * flips, (1 - 2 * gain) * flips
    forecast = mcnemar_power(60, gained, lost, 0.05)
    single, several = simulated(1, 3, gain)[0], simulated(8, 3, gain)[0]
    assert single == pytest.approx(forecast, abs=0.08)
    assert several > forecast + 0.1
