"""Lines of a file of rows that have something in common, counted from 1."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

Row = TypeVar("Row")
ROWS, BASELINE = "rows", "baseline"


class Part(NamedTuple):
    """Some lines of a file of rows, and what they have in common."""

    what: str
    file: str
    """An output of the attempt (``rows``, ``calibration``, ...), or ``baseline``: the rows of the other arm."""
    lines: tuple[int, ...]
    of: int
    """How many lines the file has."""


def part(what: str, rows: Sequence[Row], fits: Callable[[Row], bool], file: str = ROWS) -> Part:
    """Return the lines whose rows fit."""
    return Part(what, file, tuple(number for number, row in enumerate(rows, 1) if fits(row)), len(rows))


def every(what: str, rows: Sequence[object], file: str = ROWS) -> Part:
    """Return all lines."""
    return Part(what, file, tuple(range(1, len(rows) + 1)), len(rows))


def chosen(what: str, rows: Sequence[object], numbers: Iterable[int], file: str = ROWS) -> Part:
    """Return the lines with these numbers."""
    return Part(what, file, tuple(sorted(set(numbers))), len(rows))
