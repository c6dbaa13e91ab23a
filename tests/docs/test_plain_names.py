"""Names that say nothing of their value are banned: a variable is a noun, a loop variable is named by its type."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
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


def test_no_file_binds_a_banned_name() -> None:
    files = sorted(path for folder in FOLDERS for path in (HOME / folder).rglob("*.py"))
    places = [f"{path.relative_to(HOME)}:{place}" for path in files for place in banned_places(path)]
    assert len(files) > 1000 and not places, "\n".join(places)


# Comments and texts of Go, JavaScript and templates; what is left are names, or members behind a dot.
_TEXTS = {
    ".go": re.compile(r"//[^\n]*|`[^`]*`|\"(?:[^\"\\\n]|\\.)*\""),
    ".js": re.compile(r"//[^\n]*|`[^`]*`|\"(?:[^\"\\\n]|\\.)*\""),
    ".j2": re.compile(r"\{#.*?#\}|[%}]\}.*?(?=\{[{%]|\Z)|\A(?!\{[{%]).+?(?=\{[{%]|\Z)|\"[^\"]*\"|'[^']*'", re.DOTALL),
}
_NAME = re.compile(rf"(?<![.\w-])(?:{'|'.join(BANNED)})\b(?!\(|=(?! ))")


def banned_names(source: str, suffix: str) -> list[str]:
    """Return the banned names of a source that is not Python; members, keywords and calls are others' names."""
    blank = _TEXTS[suffix].sub(lambda match: re.sub(r"[^\n]", " ", match[0]), source)
    return [f"{blank.count(chr(10), 0, match.start()) + 1}: {match[0]}" for match in _NAME.finditer(blank)]


def test_no_page_script_or_go_file_has_a_banned_name() -> None:
    folders = (*FOLDERS, "verify")
    files = sorted(path for folder in folders for path in (HOME / folder).rglob("*") if path.suffix in _TEXTS)
    places = [
        f"{path.relative_to(HOME)}:{place}" for path in files for place in banned_names(path.read_text(), path.suffix)
    ]
    assert len(files) > 30 and not places, "\n".join(places)


@pytest.mark.parametrize(
    ("source", "suffix", "names"),
    [
        ("for n, one := range all {} // one", ".go", ["1: one"]),
        ('text := "one found"\nvar found []string', ".go", ["2: found"]),
        ("rows.map(told => told.id)", ".js", ["1: told", "1: told"]),
        ("rows.found // found", ".js", []),
        ("{% set found = rows(shown=1) %}", ".j2", ["1: found"]),
        ("one told {% for item in shown %}found{% endfor %}", ".j2", ["1: shown"]),
        ("{{ item.kept }} {{ 'kept' }}\n{# one #}{{ one }}", ".j2", ["2: one"]),
    ],
)
def test_banned_names_of_other_languages_are_seen(source: str, suffix: str, names: list[str]) -> None:
    assert banned_names(source, suffix) == names


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
