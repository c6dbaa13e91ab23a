"""A line of numbers as a shape of a page."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from sessions.pages.report.plots import MOST_POINTS, curve


def points(values: list[float]) -> list[tuple[float, float]]:
    drawn = curve(values, "loss")
    assert drawn is not None
    return [(float(x), float(y)) for x, y in (word.split(",") for word in drawn["points"].split())]


def test_a_falling_line_falls_from_edge_to_edge() -> None:
    drawn = points([3.0, 2.0, 1.0])
    assert [x for x, _ in drawn] == [56.0, 324.0, 592.0] and [y for _, y in drawn] == [10.0, 84.0, 158.0]


@pytest.mark.parametrize("values", [[], [1.0], [math.nan, math.inf, 1.0]])
def test_one_number_is_no_line(values: list[float]) -> None:
    assert curve(values, "loss") is None


def test_what_is_not_finite_is_left_out_and_equal_numbers_are_a_line() -> None:
    assert [x for x, _ in points([1.0, math.nan, 1.0])] == [56.0, 592.0]


def test_a_long_line_keeps_its_ends_and_its_order() -> None:
    drawn = points([float(number) for number in range(100_001)])
    assert len(drawn) <= MOST_POINTS + 1 and drawn[0] == (56.0, 158.0) and drawn[-1] == (592.0, 10.0)
    assert all(pair[0] <= right[0] for pair, right in pairwise(drawn))
