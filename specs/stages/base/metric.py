"""The form of a metric's definition. Definitions are in ``metrics.py`` of each family."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal, Self

from pydantic import model_validator

from specs.system.digests import Contract, Digest, omit_default
from specs.system.exact import exact

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
    def _one_value(self) -> Self:
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
