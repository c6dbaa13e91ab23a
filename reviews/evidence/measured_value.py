"""A measured value before it gets its definition: what the measurers of all areas return."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from reviews.statistics import mcnemar
from specs.stages.base.metric import Metric
from specs.stages.metric_catalog import METRICS
from specs.system.exact import Number

_LARGEST = 2**53
"""Canonical JSON holds no larger integer; a fraction of larger ones is kept as the nearest float."""


class MeasuredValue(NamedTuple):
    """A value with the size of its population and its 95 % interval, if its definition has one.

    What is made of counts is a fraction, and stays exact until it is compared with a threshold.
    """

    value: Number
    n: int
    interval: tuple[float, float] | None = None


def share(count: int, n: int, of_item: int = 1) -> MeasuredValue:
    """Return a share with Wilson's interval, of as many trials as items where ``of_item`` of the population are of one.

    Answers to the same item are not independent trials, and shares of items vary no more than single answers do.

    Raises:
        ValueError: the population is empty, or smaller than the count.
    """
    interval = mcnemar.wilson(count / of_item, n // of_item)
    return MeasuredValue(Fraction(count, n), n, interval)


def ratio(count: int, of: int) -> Fraction:
    """Return a share; 0 of nothing."""
    return Fraction(count, of) if of else Fraction(0)


def metric_of(id: str, measured: MeasuredValue) -> Metric:
    """Return a measured value under its definition."""
    definition, value = METRICS[id], measured.value
    terms = (value.numerator, value.denominator) if isinstance(value, Fraction) else None
    return Metric(
        id=id,
        value=float(value),
        n=measured.n,
        unit=definition.unit,
        population=definition.population,
        definition=definition.definition,
        interval=measured.interval,
        ratio=terms if terms and max(abs(terms[0]), terms[1]) < _LARGEST else None,
    )
