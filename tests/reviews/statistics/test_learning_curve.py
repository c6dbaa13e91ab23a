"""Learning curves against fits and resamples that are computed another way."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from reviews.statistics.curve_fit import UndeterminedCurve, forecast
from specs.session.evaluation_plan import CurveForm

SIZES = (100, 300, 1000, 3000)
Truth = Callable[[int], float]
GROUPS = [f"g{item % 60}" for item in range(600)]


def answers(accuracy: Truth, sizes: Sequence[int] = SIZES, seed: int = 0) -> list[list[bool]]:
    """Return items with a difficulty each: a larger training has the same items right, and some more."""
    generator = random.Random(seed)
    hard = [generator.random() for _ in GROUPS]
    return [[value < accuracy(size) for value in hard] for size in sizes]


def log_line(size: float) -> float:
    return 0.1 + 0.08 * np.log(size)


def power_law(size: float) -> float:
    return 1 - (0.9 * (size / 100) ** -0.4 + 0.1)


def line_by_polyfit(sizes: Sequence[int], accuracies: Sequence[float], at: Sequence[int]) -> np.ndarray:
    return np.clip(np.polyval(np.polyfit(np.log(sizes), accuracies, 1), np.log(at)), 0, 1)


def power_by_scipy(sizes: Sequence[int], accuracies: Sequence[float], at: Sequence[int]) -> np.ndarray:
    """Return the best fit of scipy's trust region method from several starts."""
    from scipy.optimize import curve_fit

    def law(n: np.ndarray, a: float, b: float, c: float) -> np.ndarray:
        return a * n**-b + c

    scaled, errors, best = np.array(sizes) / sizes[0], 1 - np.array(accuracies), (np.inf, np.zeros(len(at)))
    for start in (0.05, 0.3, 1.0):
        fitted, _ = curve_fit(law, scaled, errors, (0.5, start, 0.1), bounds=([0, 0.005, 0], [np.inf, 4, 1]))
        cost = float(np.square(law(scaled, *fitted) - errors).sum())
        if cost < best[0]:
            best = cost, 1 - law(np.array(at) / sizes[0], *fitted)
    return np.clip(best[1], 0, 1)


def test_many_power_laws_are_fitted_as_one_by_one() -> None:
    """Of noisy curves, falling and flat ones among them, the sum of squares is never above that of scipy's fit."""
    generator = random.Random(8)
    for _ in range(8):
        accuracies = sorted((generator.uniform(0.2, 0.9) for _ in SIZES), reverse=generator.random() < 0.3)
        passed = [[place < round(value * 600) for place in range(600)] for value in accuracies]
        try:
            fitted = forecast(SIZES, passed, GROUPS, 15000, "power_law").fitted
        except UndeterminedCurve:
            continue
        exact = [sum(values) / 600 for values in passed]
        ours = np.square(np.array(fitted) - exact).sum()
        theirs = np.square(power_by_scipy(SIZES, exact, SIZES) - exact).sum()
        assert ours <= theirs + 1e-5, accuracies


FITS: list[tuple[CurveForm, Truth, Callable[..., np.ndarray], float]] = [
    ("log_linear", log_line, line_by_polyfit, 1e-9),
    ("power_law", power_law, power_by_scipy, 2e-3),
]


@pytest.mark.parametrize(("form", "truth", "fit", "most"), FITS)
def test_a_fit_is_that_of_another_implementation(
    form: CurveForm, truth: Truth, fit: Callable[..., np.ndarray], most: float
) -> None:
    passed = answers(truth)
    result = forecast(SIZES, passed, GROUPS, 15000, form)
    accuracies = [sum(values) / len(values) for values in passed]
    *fitted, last, ahead = fit(SIZES, accuracies, [*SIZES, SIZES[-1], 15000])
    assert result.fitted == pytest.approx(fitted, abs=most)
    assert (result.accuracy, result.gain) == pytest.approx((ahead, ahead - last), abs=most)
    assert result.interval[0] < result.accuracy < result.interval[1] and result.gain_interval[0] > 0


def test_the_interval_is_that_of_groups_drawn_one_by_one() -> None:
    passed = np.array(answers(log_line))
    result = forecast(SIZES, passed.tolist(), GROUPS, 15000, "log_linear")
    generator, gains = np.random.default_rng(1), list[float]()
    places = [np.flatnonzero([group == name for group in GROUPS]) for name in sorted(set(GROUPS))]
    for _ in range(2000):
        drawn = np.concatenate([places[place] for place in generator.integers(len(places), size=len(places))])
        last, ahead = line_by_polyfit(SIZES, passed[:, drawn].mean(axis=1).tolist(), [SIZES[-1], 15000])
        gains.append(ahead - last)
    assert result.gain_interval == pytest.approx(np.percentile(gains, [2.5, 97.5]), abs=0.004)


def test_a_flat_curve_forecasts_no_gain() -> None:
    generator = random.Random(3)
    flat = [[generator.random() < 0.6 for _ in GROUPS] for _ in SIZES]
    forms: tuple[CurveForm, ...] = ("log_linear", "power_law")
    for form in forms:
        result = forecast(SIZES, flat, GROUPS, 15000, form)
        assert result.gain_interval[0] <= 0 <= result.gain_interval[1]
        assert abs(result.gain) < 0.06


def test_what_is_not_determined_is_refused() -> None:
    passed = answers(log_line)
    with pytest.raises(UndeterminedCurve, match="2 numbers of examples leave a log_linear fit no degree of freedom"):
        forecast((100, 100, 300), passed[:3], GROUPS, 15000, "log_linear")
    with pytest.raises(UndeterminedCurve, match="3 numbers of examples leave a power_law fit no degree"):
        forecast(SIZES[:3], passed[:3], GROUPS, 15000, "power_law")
    with pytest.raises(UndeterminedCurve, match="of 2 groups; an interval needs 4"):
        forecast(SIZES, passed, [f"g{item % 2}" for item in range(600)], 15000, "log_linear")
    generator = random.Random(1)
    few = [[generator.random() < 0.5 for _ in range(8)] for _ in SIZES]
    with pytest.raises(UndeterminedCurve, match=r"the interval of the accuracy is .*, wider than 0\.5"):
        forecast((10, 11, 12, 13), few, [str(item) for item in range(8)], 10**6, "log_linear")


def test_the_same_answers_give_the_same_figures() -> None:
    passed = answers(log_line)
    assert forecast(SIZES, passed, GROUPS, 15000, "power_law") == forecast(SIZES, passed, GROUPS, 15000, "power_law")
