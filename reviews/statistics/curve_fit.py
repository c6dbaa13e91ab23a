"""Learning curves: a fit of accuracies over numbers of training examples, and its interval by resampling.

The forms are a straight line over the logarithm, and the power law with a floor of Hestness et al. 2017
(arXiv:1712.00409) and Rosenfeld et al. 2020 (arXiv:1909.12673).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from reviews.statistics.mcnemar import LEAST_GROUPS
from specs.session.evaluation_plan import CURVE_PARAMETERS, CurveForm

RESAMPLES = 1000
_SEED = 20171212
MOST_WIDTH = 0.5
"""An interval of the accuracy that is wider says nothing that would be worth a decision."""
_EXPONENTS = (0.005, 4.0, 700)
"""The least and the largest exponent that is tried, and how many in equal ratios: published ones are 0.05 to 0.5."""


class Forecast(NamedTuple):
    """What a curve says of a number of examples, with 95 % intervals; accuracies are cut at 0 and 1."""

    accuracy: float
    interval: tuple[float, float]
    gain: float
    """Over the fitted accuracy of the most examples that were trained on."""
    gain_interval: tuple[float, float]
    fitted: tuple[float, ...]
    """The accuracy of each point by the curve."""


class UndeterminedCurve(ValueError):
    """The points do not determine a curve, or its interval says nothing."""


def forecast(
    sizes: Sequence[int], passed: Sequence[Sequence[bool]], groups: Sequence[str], at: int, form: CurveForm
) -> Forecast:
    """Return the forecast at a number of examples; ``passed`` says of each size whether each item was right.

    The interval is the paired percentile bootstrap over groups of items (Efron 1979; Davison and Hinkley 1997, section
    3.8): in every resample all sizes have the same items. It holds for other items, and not for other training seeds or
    another form of the curve.

    Raises:
        UndeterminedCurve: there are too few sizes or groups, or the interval is wider than :data:`MOST_WIDTH`.
    """
    import numpy as np

    if len(set(sizes)) <= CURVE_PARAMETERS[form]:
        raise UndeterminedCurve(f"{len(set(sizes))} numbers of examples leave a {form} fit no degree of freedom")
    names = sorted(set(groups))
    if len(names) < LEAST_GROUPS:
        raise UndeterminedCurve(f"the items are of {len(names)} groups; an interval needs {LEAST_GROUPS}")
    places = np.array([names.index(group) for group in groups])
    counts = np.bincount(places).astype(float)
    right = np.array([np.bincount(places, np.asarray(values, float)) for values in passed]).T
    drawn = np.random.default_rng(_SEED).multinomial(len(names), np.full(len(names), 1 / len(names)), RESAMPLES)
    weights = np.vstack([np.ones(len(names)), drawn])
    accuracies = (weights @ right) / (weights @ counts)[:, None]
    points = np.array([*sizes, max(sizes), at], float)
    curves = _fit(np.asarray(sizes, float), accuracies, points, form)
    # Before it is cut: a line that leaves the scale in every resample would seem to be sure.
    low, high = np.percentile(curves[1:, -1], (2.5, 97.5))
    if high - low > MOST_WIDTH:
        raise UndeterminedCurve(f"the interval of the accuracy is [{low:.3f}, {high:.3f}], wider than {MOST_WIDTH:g}")
    curves = np.clip(curves, 0.0, 1.0)
    gains, (low, high) = curves[:, -1] - curves[:, -2], np.clip((low, high), 0.0, 1.0)
    gain_low, gain_high = np.percentile(gains[1:], (2.5, 97.5))
    return Forecast(
        float(curves[0, -1]),
        (float(low), float(high)),
        float(gains[0]),
        (float(gain_low), float(gain_high)),
        tuple(map(float, curves[0, : len(sizes)])),
    )


def _fit(sizes: Any, accuracies: Any, points: Any, form: CurveForm) -> Any:
    """Return the accuracies at points by a least-squares fit to each row of accuracies."""
    import numpy as np

    if form == "log_linear":
        design = np.column_stack([np.ones_like(sizes), np.log(sizes)])
        lines = np.linalg.lstsq(design, accuracies.T, rcond=None)[0]
        return (np.column_stack([np.ones_like(points), np.log(points)]) @ lines).T
    return 1 - _power_law(sizes, 1 - accuracies, points)


def _power_law(sizes: Any, errors: Any, points: Any) -> Any:
    """Return the errors at points by the best ``a n^-b + c`` for each row of errors, with a and c not below 0.

    For a known exponent the other two are linear (variable projection: Golub and Pereyra 1973, SIAM J. Numer. Anal.
    10:413-432), so that all rows are fitted at once for each of :data:`_EXPONENTS`.
    """
    import numpy as np

    least, curves = np.full(len(errors), np.inf), np.zeros((len(errors), len(points)))
    mean = errors.mean(axis=1)
    for exponent in np.geomspace(*_EXPONENTS):
        # By the smallest number, so that a is an error at that number.
        x, ahead = (sizes / sizes.min()) ** -exponent, (points / sizes.min()) ** -exponent
        slope = (errors - mean[:, None]) @ (x - x.mean()) / np.square(x - x.mean()).sum()
        floor = np.maximum(mean - slope * x.mean(), 0.0)
        a = np.maximum((errors - floor[:, None]) @ x / (x @ x), 0.0)
        c = np.where(slope > 0, floor, mean)
        a = np.where(slope > 0, a, 0.0)
        cost = np.square(a[:, None] * x + c[:, None] - errors).sum(axis=1)
        better = cost < least
        least = np.where(better, cost, least)
        curves[better] = (a[:, None] * ahead + c[:, None])[better]
    return curves
