"""Lines of a file of items, with what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from specs.stages.base.artifacts import Item
from specs.stages.explain import explain
from specs.system.errors import Problem
from specs.system.text import plural
from specs.system.yaml.problems import Loc, format_loc, printable

MAX_DATA_PROBLEMS = 20
"""More lines than this are wrong for one reason; the rest is counted."""


def check_items(path: Path, raw: bytes) -> list[Problem]:
    """Return what is wrong with the lines of a file of items."""
    problems: list[Problem] = []
    seen_counts: dict[str, int] = {}
    for number, line in enumerate(raw.removesuffix(b"\n").split(b"\n"), 1):
        item = _read_item(line)
        if isinstance(item, Item):
            if item.id in seen_counts:
                message = f"id '{item.id}' is already used on line {seen_counts[item.id]}"
                problems.append(Problem(str(path), number, 1, "id", printable(message), "ids are unique"))
            seen_counts.setdefault(item.id, number)
        else:
            problems += [Problem(str(path), number, column, *map(printable, texts)) for column, *texts in item]
    return problems


def at_most(problems: list[Problem]) -> list[Problem]:
    """Return the first problems of a file and how many more there are."""
    displayed_problems, rest = problems[:MAX_DATA_PROBLEMS], problems[MAX_DATA_PROBLEMS:]
    if not rest:
        return displayed_problems
    message = f"and {plural(len(rest), 'more problem')} from this line on"
    return [*displayed_problems, Problem(rest[0].path, rest[0].line, 1, "", message, stands_for=len(rest))]


def _read_item(line: bytes) -> Item | list[tuple[int, str, str]]:
    """Return the item of a line, or (column, keys, message) for each thing wrong with it."""
    try:
        json.loads(line)
    except json.JSONDecodeError as error:
        return [(error.colno, "", f"not valid JSON: {error.msg}" if line.strip() else "the line is empty")]
    except (UnicodeDecodeError, RecursionError, ValueError) as error:
        return [(1, "", f"not valid JSON: {type(error).__name__}")]
    try:
        return Item.model_validate_json(line, strict=True)
    except ValidationError as error:
        results: dict[Loc, tuple[int, str, str]] = {}
        for entry in error.errors(include_url=False):
            lint_problem = explain(entry, Item)
            # A union is reported once for each of its members.
            loc = lint_problem.loc[:2] if lint_problem.loc[:1] == ("constraint",) else lint_problem.loc
            message = "must be text or a whole number" if len(lint_problem.loc) > 2 else lint_problem.message
            results.setdefault(loc, (1, format_loc(loc), message))
        return list(results.values())
