"""Names that say nothing of their value are banned: a variable is a noun, a loop variable is named by its type.

``plain_names.json`` lists what tests still use, by folder and file. It may only shrink: after a rename run
``python -m tests.docs.test_plain_names``, which writes the smaller counts and refuses larger ones.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
LIST = Path(__file__).with_name("plain_names.json")
FOLDERS = ("agents", "bench", "release", "reviews", "sessions", "specs", "testing", "tests", "training")
BANNED = {"one", "found", "told", "given", "asked", "said", "kept", "left", "held", "due", "shown"}
WORD = re.compile(rf"\b(?:{'|'.join(BANNED)})\b")


def bound_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of every variable, parameter, alias and captured pattern."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)) | ast.alias(asname=str(name)):
                yield node.lineno, name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield node.lineno, name
            case _:
                pass


def banned_places(path: Path) -> list[str]:
    """Return ``LINE: NAME`` for every banned name that a file binds."""
    source = path.read_text(encoding="utf-8")
    names = bound_names(source) if WORD.search(source) else ()  # Parsing is the slow part.
    return [f"{line}: {name}" for line, name in names if name in BANNED]


@cache
def used_counts() -> dict[str, int]:
    """Return the number of banned names of each file that has some."""
    files = sorted(path for folder in FOLDERS for path in (HOME / folder).rglob("*.py"))
    return {str(path.relative_to(HOME)): count for path in files if (count := len(banned_places(path)))}


def allowed_counts() -> dict[str, int]:
    """Return the listed number of each file."""
    folders = json.loads(LIST.read_text(encoding="utf-8"))
    return {f"{folder}/{name}": count for folder, counts in folders.items() for name, count in counts.items()}


def excess(used: dict[str, int], allowed: dict[str, int]) -> list[str]:
    """Return the files that use more banned names than are listed."""
    return [path for path, count in used.items() if count > allowed.get(path, 0)]


def slack(used: dict[str, int], allowed: dict[str, int]) -> list[str]:
    """Return the files for which more banned names are listed than they use."""
    return [path for path, count in allowed.items() if count > used.get(path, 0)]


def test_no_file_binds_more_banned_names_than_are_listed() -> None:
    used, allowed = used_counts(), allowed_counts()
    places = [f"{path}:{place}" for path in excess(used, allowed) for place in banned_places(HOME / path)]
    assert not places, "\n".join(places)


def test_the_list_allows_no_more_than_is_used() -> None:
    assert not slack(used_counts(), allowed_counts()), "run: python -m tests.docs.test_plain_names"


def test_only_local_names_of_tests_are_listed() -> None:
    assert {Path(path).parts[0] for path in allowed_counts()} <= {"tests"}


@pytest.mark.parametrize(
    "source",
    [
        "one = 1",
        "def f(found): pass",
        "def f(*, told=None): pass",
        "[asked for asked in range(3)]",
        "for given, other in pairs: pass",
        "with open(path) as held: pass",
        "try: pass\nexcept ValueError as said: pass",
        "import os as kept",
        "match value:\n    case [*left]: pass",
        "match value:\n    case {'a': due}: pass",
        "class Row:\n    shown: int = 0",
        "lambda one: 0",
        "(one := 1)",
    ],
)
def test_each_way_to_bind_a_banned_name_is_seen(source: str) -> None:
    assert [name for _, name in bound_names(source) if name in BANNED], source


def test_reading_a_banned_name_or_calling_a_method_of_that_name_is_allowed() -> None:
    assert not [name for _, name in bound_names("entry = one.found(told)[asked]\nnumber_one = 1") if name in BANNED]


def test_a_new_name_and_a_removed_name_are_both_reported() -> None:
    assert excess({"tests/a.py": 2}, {"tests/a.py": 1}) == excess({"tests/a.py": 1}, {}) == ["tests/a.py"]
    assert slack({"tests/a.py": 1}, {"tests/a.py": 2}) == slack({}, {"tests/a.py": 1}) == ["tests/a.py"]
    assert excess({"tests/a.py": 1}, {"tests/a.py": 1}) == slack({"tests/a.py": 1}, {"tests/a.py": 1}) == []


def write_smaller_counts() -> None:
    """Write the counts of today; raises SystemExit if one of them has grown."""
    used = used_counts()
    if LIST.exists() and (grown := excess(used, allowed_counts())):
        raise SystemExit(f"rename these, the list may only shrink: {', '.join(grown)}")
    folders: dict[str, Counter[str]] = {}
    for path, count in used.items():
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, Counter())[name] = count
    lines = [f"{json.dumps(folder)}: {json.dumps(counts)}" for folder, counts in sorted(folders.items())]
    LIST.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    write_smaller_counts()
