"""The form of a metric's definition. Definitions are in ``metrics.py`` of each family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import median
from typing import Any, Literal, Self

from pydantic import BaseModel, model_validator

from specs.system.digests import Contract, Digest, omit_default
from specs.system.exact import Number, exact

Scope = str
"""The stage kind whose rows hold the population; ``comparison`` pairs the two arms, ``rule`` belongs to kinds and
controls of the analysis. Recipes have none: what builder's code computes is a claim."""


class MetricDefinition(Contract):
    """What a metric id means; ``direction`` says which way is better (``none`` for descriptions)."""

    id: str
    scope: Scope = ""
    """Filled in by the kind that declares the metric."""
    unit: str
    population: str
    definition: str
    direction: Literal["higher", "lower", "none"]


class Metric(Contract):
    """A measured value. ``interval`` is the 95 % interval (low, high) where the definition has one."""

    id: str
    value: float
    n: int
    unit: str
    population: str
    definition: str
    interval: tuple[float, float] | None = None
    ratio: tuple[int, int] | None = omit_default()
    """The exact value of what is made of counts, in lowest terms; ``value`` is the float nearest to it."""

    @model_validator(mode="after")
    def _check_value(self) -> Self:
        if self.ratio is not None and (self.ratio[1] < 1 or self.value != self.ratio[0] / self.ratio[1]):
            raise ValueError(f"the ratio {self.ratio[0]} / {self.ratio[1]} is not the value {self.value!r}")
        return self

    def exact(self) -> Fraction:
        """Return the value to compare with a threshold."""
        return exact(self.value) if self.ratio is None else Fraction(*self.ratio)

    def counts(self) -> tuple[int, int] | None:
        """Return how many of the population a fraction is, where it is a number of them."""
        if self.ratio is None or self.unit != "fraction" or self.n < 1 or self.n % self.ratio[1]:
            return None
        return self.ratio[0] * (self.n // self.ratio[1]), self.n


class MetricSet(Contract):
    """Every metric of one attempt, bound to the rows and the code they were computed from."""

    schema_version: Literal[1] = 1
    stage: str
    attempt: int
    rows: dict[str, Digest]
    code: Digest
    metrics: dict[str, Metric]


Fits = Callable[[Any], bool]
Better = Literal["higher", "lower", "none"]


@dataclass(frozen=True)
class Population:
    """Rows, and what they have in common: in words, and as a predicate where it is not all of them."""

    description: str
    predicate: Fits | None = None
    output: str = ""
    """The output that holds the rows, or what the kind's judge makes of outputs under this name. Left out: ``rows``; of
    a part, the output of its population."""
    may_be_empty: bool = False
    """Whether a value of no rows is 0. Otherwise a metric of no rows is missing evidence."""

    def holds(self, row: Any) -> bool:
        """Return whether a row is one of them."""
        return self.predicate is None or self.predicate(row)


@dataclass(frozen=True)
class Value:
    """What is computed of a population."""

    definition: str
    of: Callable[[Sequence[Any]], Number] | None = None
    """None: the kind's judge returns it from ``measure``, under the metric's id."""
    parts: tuple[Population, ...] = ()
    """The rows that it counts or is computed from, where that is not the whole population."""
    interval: bool = False
    """Whether it is a share of the first part that is measured with Wilson's interval."""
    fields: tuple[str, ...] = ()
    """The keys of a row that are read by name."""


class RowMetric(MetricDefinition):
    """A metric of one output's rows."""

    over: Population
    value: Value

    @property
    def output(self) -> str:
        """The output that holds its population."""
        return self.over.output or "rows"


def metric(id: str, unit: str, value: Value, better: Better = "none", *, over: Population) -> RowMetric:
    """Return the metric that computes ``value`` from the rows that ``over`` selects.

    No other metric may have its ``id``. The unit of a share is ``fraction``.
    """
    return RowMetric(
        id=id,
        unit=unit,
        population=over.description,
        definition=value.definition,
        direction=better,
        over=over,
        value=value,
    )


def rate(id: str, text: str, fits: Fits, better: Better = "none", *, over: Population, of: str = "rows") -> RowMetric:
    """Return a metric that is a :func:`share`."""
    return metric(id, "fraction", share(text, fits, of), better, over=over)


every = Population("all rows")
count = Value("number of rows", len)


def where(text: str, fits: Fits, output: str = "", *, may_be_empty: bool = False) -> Population:
    """Return the population of the rows that fit."""
    return Population(text, fits, output, may_be_empty)


def mean(name: str) -> Value:
    """Return the mean of a field."""
    return Value(f"mean of {name}", lambda rows: sum(getattr(row, name) for row in rows) / len(rows), fields=(name,))


def ratio(above: str, below: str) -> Value:
    """Return the sum of one field divided by the sum of another."""
    return Value(
        f"{above} / {below}, each summed over the rows",
        lambda rows: sum(getattr(row, above) for row in rows) / sum(getattr(row, below) for row in rows),
        fields=(above, below),
    )


def share(text: str, fits: Fits, of: str = "rows") -> Value:
    """Return the share of the rows that fit, with its interval; ``of`` is what the definition divides by."""
    return replace(fraction(f"{text} / {of}" if of else text, Population(text, fits)), interval=True)


def number(text: str, fits: Fits) -> Value:
    """Return the number of the rows that fit."""
    return Value(text, lambda rows: sum(map(fits, rows)), (Population(text, fits),))


def total(text: str, of: Callable[[Any], int], part: str = "") -> Value:
    """Return a sum over the rows; ``part`` says what rows that add to it are."""
    return Value(text, lambda rows: sum(map(of, rows)), (Population(part, lambda row: of(row) > 0),) if part else ())


def middle(text: str, of: Callable[[Any], float]) -> Value:
    """Return the median over the rows."""
    return Value(text, lambda rows: median(map(of, rows)))


def judged_value(text: str, *parts: Population) -> Value:
    """Return a value that the kind's judge computes: its ``measure`` returns it under the metric's id."""
    return Value(text, parts=parts)


def fraction(text: str, part: Population) -> Value:
    """Return the share of the rows that are in a part, without an interval."""
    return Value(text, lambda rows: Fraction(sum(map(part.holds, rows)), len(rows)), (part,))


def wrong_names(metric: RowMetric, rows: Mapping[str, type[BaseModel]]) -> str:
    """Return which output or field a metric names that the rows of its kind do not have; empty if all are there."""
    if metric.output not in rows:
        return f"is one of output '{metric.output}'; outputs with rows are: {', '.join(rows)}"
    row = rows[metric.output]
    named = [(row, name) for name in metric.value.fields if name not in row.model_fields and not hasattr(row, name)]
    for over in (metric.over, *metric.value.parts):
        part = rows.get(over.output or metric.output)
        if part is not None and over.predicate and (name := _unknown_attribute(over.predicate, part)):
            named.append((part, name))
    return next((f"reads '{name}' of its rows, which have: {', '.join(kind.model_fields)}" for kind, name in named), "")


_TRIED = (0, 1, "", "x", None, (), True)
"""Values of every field, with which a predicate takes its different ways."""


def _unknown_attribute(predicate: Fits, row: type[BaseModel]) -> str:
    """Return an attribute that a predicate reads and these rows lack; empty if a try finds none."""
    for value in _TRIED:
        try:
            values: dict[str, Any] = dict.fromkeys(row.model_fields, value)
            predicate(row.model_construct(**values))
        except AttributeError as error:
            if isinstance(error.obj, row) and error.name:
                return error.name
        except Exception:  # A value of another type than the field's: it says nothing about names.
            continue
    return ""
