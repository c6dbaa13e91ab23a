"""Metrics that are declared over rows: the population as a predicate, the value as a function of it.

Measured value, traced lines and the text of the definition all come from one declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from specs.stages.metric import MetricDefinition


@dataclass(frozen=True)
class Over:
    """A population: which rows, and what they have in common in words."""

    told: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True)
class Value:
    """What is computed of a population. ``counted`` says which rows a share counts."""

    told: str
    of: Callable[[Sequence[Any]], float | Fraction]
    counted: Over | None = None


class RowMetric(MetricDefinition):
    """A metric of one output's rows."""

    over: Over
    value: Value
    output: str = "rows"


def metric(
    id: str,
    *,
    unit: str,
    over: Over,
    value: Value,
    better: Literal["higher", "lower", "none"] = "none",
    output: str = "rows",
) -> RowMetric:
    """Return a metric of the kind that declares it.

    Args:
        id: its name, which no other metric has.
        unit: what one is of; ``fraction`` for shares.
        over: the rows it is computed from.
        value: what is computed of them.
        better: which way is better.
        output: the output that holds the rows.
    """
    return RowMetric(
        id=id,
        unit=unit,
        population=over.told,
        definition=value.told,
        direction=better,
        over=over,
        value=value,
        output=output,
    )


every = Over("all rows", lambda row: True)
count = Value("number of rows", len)


def where(told: str, fits: Callable[[Any], bool]) -> Over:
    """Return the population of the rows that fit."""
    return Over(told, fits)


def mean(name: str) -> Value:
    """Return the mean of a field."""
    return Value(f"mean of {name}", lambda rows: sum(getattr(row, name) for row in rows) / len(rows))


def ratio(above: str, below: str) -> Value:
    """Return the sum of one field divided by the sum of another."""
    return Value(
        f"{above} / {below}, each summed over the rows",
        lambda rows: sum(getattr(row, above) for row in rows) / sum(getattr(row, below) for row in rows),
    )


def share(told: str, fits: Callable[[Any], bool]) -> Value:
    """Return the share of the rows that fit; it is measured with its interval."""
    return Value(f"{told} / rows", lambda rows: Fraction(sum(map(fits, rows)), len(rows)), Over(told, fits))
