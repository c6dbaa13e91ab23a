"""Lines of a file of rows that have something in common, counted from 1."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

Row = TypeVar("Row")
ROWS, BASELINE = "rows", "baseline"


class LineSelection(NamedTuple):
    """Some lines of a file of rows, and what they have in common."""

    what: str
    file: str
    """An output of the attempt (``rows``, ...), a stage, or ``baseline``: the rows of the other arm."""
    lines: tuple[int, ...]
    of: int
    """How many lines the file has."""


def part(what: str, rows: Sequence[Row], fits: Callable[[Row], bool], file: str = ROWS) -> LineSelection:
    """Return the lines whose rows fit."""
    return LineSelection(what, file, tuple(number for number, row in enumerate(rows, 1) if fits(row)), len(rows))


class Subjects(NamedTuple):
    """What metrics are computed from: rows, or what was computed again from them, each with the line it came from."""

    rows: Sequence[Any]
    lines: Sequence[int]
    """0 for what the file lacks."""
    of: int
    """How many lines the file has."""
    file: str = ROWS
    of_item: int = 1
    """How many of the rows are of one item: an interval takes them together."""


def as_written(rows: Sequence[Any], file: str = ROWS) -> Subjects:
    """Return one subject a line."""
    return Subjects(rows, range(1, len(rows) + 1), len(rows), file)


def by_item(subjects: Sequence[Any], rows: Sequence[Any], file: str = ROWS) -> Subjects:
    """Return rows, or what has a ``row``, in an order of their own, each with the line of the row of its item."""
    line = {answer_of(row): number for number, row in enumerate(rows, 1)}
    lines = [line[answer_of(getattr(subject, "row", subject))] for subject in subjects]
    return Subjects(subjects, lines, len(rows), file)


def answer_of(row: Any) -> tuple[str, int]:
    """Return which answer a row is: the item's id, and the number of the sample."""
    return row.item, getattr(row, "sample", 0)


def inside(subjects: Subjects, parts: Callable[[Any], Iterable[Any]]) -> Subjects:
    """Return the parts of subjects, such as the turns of conversations, each with the line of its whole."""
    pairs = zip(subjects.rows, subjects.lines, strict=True)
    matching_pairs = [(part, line) for whole, line in pairs for part in parts(whole)]
    return Subjects(
        [value for value, _ in matching_pairs], [line for _, line in matching_pairs], subjects.of, subjects.file
    )


def ranges(lines: Iterable[int]) -> str:
    """Write line numbers for people: ``1-3, 7``."""
    counts: list[list[int]] = []
    for line in lines:
        if counts and line == counts[-1][1] + 1:
            counts[-1][1] = line
        else:
            counts.append([line, line])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in counts)
