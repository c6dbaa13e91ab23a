"""A measured value before it gets its definition: what the measurers of all areas return."""

from __future__ import annotations

from typing import NamedTuple

from reviews import statistics


class Measured(NamedTuple):
    """A value with the size of its population and its 95 % interval, if its definition has one."""

    value: float
    n: int
    interval: tuple[float, float] | None = None


def share(count: int, n: int) -> Measured:
    """Return a share with Wilson's interval.

    Raises:
        ValueError: the population is empty, or smaller than the count.
    """
    return Measured(count / n, n, statistics.wilson(count, n))
