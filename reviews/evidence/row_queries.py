"""Row queries over what is kept: filter, sort, group, sample, compare, and find a text.

Anyone who asks sees texts as they were cleaned for them: filters work on the cleaned rows, so that none finds, by how
many rows fit, what is withheld.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from specs.system.text import enclose, plain
from specs.trail.tool_arguments import CompareRows, Grep, QueryRows, ReadArtifact, ToolCallRefusal, Where

MOST_READABLE = 4_000_000
"""Characters of an artifact that can be read."""

TEXT = 400
"""Characters of one value of a row."""
MOST_GROUPS = 50
LINE = 300
_ABSENT = object()


class ArtifactRows(NamedTuple):
    """The rows of an artifact."""

    name: str
    rows: list[dict[str, Any]]
    unreadable: int
    """Lines that are not JSON object, such as those in which something was withheld."""
    is_all: bool


def rows_of(name: str, text: str) -> ArtifactRows:
    """Return the rows of a text with one JSON object a line; raises Refused if it has none."""
    rows: list[dict[str, Any]] = []
    unreadable = 0
    for line in filter(str.strip, text.splitlines()):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            rows.append(row)
        else:
            unreadable += 1
    if not rows:
        raise ToolCallRefusal(f"{name} holds no rows; read_artifact shows its text")
    return ArtifactRows(name, rows, unreadable, len(text) < MOST_READABLE)


def query(rows_result: ArtifactRows, arguments: QueryRows) -> str:
    """Return the rows that fit, or how many there are of each group."""
    rows = [row for row in rows_result.rows if all(_holds(where, row) for where in arguments.where)]
    message = f"{rows_result.name}: {len(rows)} of {len(rows_result.rows)} rows fit{_beside(rows_result)}"
    if arguments.group_by:
        counts = Counter(_format_value(_value(row, arguments.group_by)) for row in rows)
        lines = [f"{count} x {value}" for value, count in counts.most_common(MOST_GROUPS)]
        more = f"; {len(counts) - MOST_GROUPS} values more" if len(counts) > MOST_GROUPS else ""
        return (
            f"{message}; {len(counts)} values of {arguments.group_by}{more}\n{enclose('groups', chr(10).join(lines))}"
        )
    if arguments.sort_by:
        rows = sorted(rows, key=lambda row: _order(_value(row, arguments.sort_by)), reverse=arguments.descending)
    if arguments.sample_seed is not None:
        rows = random.Random(arguments.sample_seed).sample(rows, min(arguments.limit, len(rows)))
    visible = rows[arguments.offset : arguments.offset + arguments.limit]
    lines = [json.dumps(_part(row, arguments.fields), ensure_ascii=False) for row in visible]
    return f"{message}, {len(visible)} are shown\n{enclose('rows', chr(10).join(lines))}"


def compare(current_rows: ArtifactRows, other: ArtifactRows, arguments: CompareRows) -> str:
    """Return the items whose field differs between two artifacts; raises Refused if neither field names items."""
    first, second = (_by_item(rows, arguments.by) for rows in (current_rows, other))
    shared = [item for item in first if item in second]
    pairs = [(item, _value(first[item], arguments.field), _value(second[item], arguments.field)) for item in shared]
    differing = [pair for pair in pairs if pair[1] != pair[2]]
    lines = [
        json.dumps({"item": item, "first": _cut(here), "second": _cut(there)}, ensure_ascii=False)
        for item, here, there in differing[: arguments.limit]
    ]
    message = (
        f"{len(shared)} items are in both, {len(first) - len(shared)} in {arguments.first} alone, "
        f"{len(second) - len(shared)} in {arguments.second} alone; {arguments.field} differs in {len(differing)}"
    )
    return f"{message}\n{enclose('differences', chr(10).join(lines))}"


def grep(texts: Iterable[tuple[str, str]], arguments: Grep) -> str:
    """Return the lines of named texts that hold a text, with name and number."""
    wanted = arguments.text.casefold() if arguments.ignore_case else arguments.text
    lines: list[str] = []
    count = artifacts = 0
    for name, text in texts:
        artifacts += 1
        for number, line in enumerate(text.splitlines(), 1):
            place = (line.casefold() if arguments.ignore_case else line).find(wanted)
            if place < 0:
                continue
            count += 1
            if len(lines) < arguments.limit:
                begin = max(0, place - LINE // 3)
                lines.append(f"{name}:{number}: {plain(line[begin : begin + LINE], LINE)}")
    message = f"{count} lines of {artifacts} artifacts hold the text, {len(lines)} are shown"
    return f"{message}\n{enclose('lines', chr(10).join(lines))}"


def part_of(name: str, text: str, arguments: ReadArtifact) -> str:
    """Return a part of a text, with its place; raises Refused if there is none."""
    matching_text = text[arguments.offset : arguments.offset + arguments.limit]
    if not matching_text and arguments.offset:
        raise ToolCallRefusal(f"{name} has {len(text)} characters, got offset {arguments.offset}")
    end = arguments.offset + len(matching_text)
    more = f"; continue with offset {end}" if end < len(text) else ""
    return f"{name}, characters {arguments.offset} to {end} of {len(text)}{more}\n{enclose('artifact', matching_text)}"


def _beside(rows: ArtifactRows) -> str:
    unreadable = f"; {rows.unreadable} lines are not rows or hold what is withheld" if rows.unreadable else ""
    return unreadable + ("" if rows.is_all else f"; only its first {MOST_READABLE} characters were read")


def _by_item(rows: ArtifactRows, by: str) -> dict[str, dict[str, Any]]:
    """Return the first row of each item."""
    results: dict[str, dict[str, Any]] = {}
    for row in rows.rows:
        results.setdefault(_format_value(_value(row, by)), row)
    if list(results) == [_format_value(_ABSENT)]:
        raise ToolCallRefusal(f"no row of {rows.name} has a field '{plain(by, 60)}'")
    return results


def _value(row: Any, field: str) -> Any:
    """Return the value of a field; of an inner object, by its path with dots."""
    for part in [field] if isinstance(row, dict) and field in row else field.split("."):
        if not isinstance(row, dict) or part not in row:
            return _ABSENT
        row = row[part]
    return row


def _holds(where: Where, row: dict[str, Any]) -> bool:
    result, value = _value(row, where.field), where.value
    if result is _ABSENT:
        return where.test == "lacks" or (where.test == "differs" and value is not None)
    match where.test:
        case "equals":
            return result == value
        case "differs":
            return result != value
        case "contains":
            return str(value) in _text(result)
        case "lacks":
            return str(value) not in _text(result)
        case "above":
            return _number(result) > _number(value)
        case "below":
            return _number(result) < _number(value)
        case "longer":
            return len(_text(result)) > _number(value)
        case "shorter":
            return len(_text(result)) < _number(value)


def _number(value: Any) -> float:
    """Return a value as a number; NaN, which is neither above nor below anything, if it is not a number."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _order(value: Any) -> tuple[int, float, str]:
    """Return a key by which values of any type can be sorted: numbers, then texts, then what is absent."""
    if (number := _number(value)) == number:
        return 0, number, ""
    return (2, 0.0, "") if value is _ABSENT else (1, 0.0, _text(value))


def _format_value(value: Any) -> str:
    return "(absent)" if value is _ABSENT else plain(_text(value), TEXT)


def _cut(value: Any) -> Any:
    if value is _ABSENT:
        return "(absent)"
    text = _text(value)
    return value if len(text) <= TEXT else f"{text[:TEXT]} [{len(text)} characters]"


def _part(row: dict[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    return dict(_fields(row, fields))


def _fields(row: dict[str, Any], fields: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for name in fields or row:
        if (value := _value(row, name)) is not _ABSENT:
            yield name, _cut(value)
