"""The tool ``look_up``: signatures and docstrings of installed libraries, read from files and never imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from sessions.builder.tools.tool_context import PhaseWork, ToolCallRefusal
from specs.system.text import enclose, plain
from specs.trail.builder_tools import LookUp

LIBRARIES = ("accelerate", "datasets", "numpy", "peft", "safetensors", "tokenizers", "torch", "transformers", "trl")
DOCSTRING = 8_000
MOST_FILE = 2_000_000
MOST_MATCHES = 5
_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class _Place(NamedTuple):
    path: Path
    node: _Definition


def look_up(_: PhaseWork, arguments: LookUp) -> str:
    """Return signature and docstring of a class, a function or a method."""
    library, *parts = arguments.name.split(".")
    if library not in LIBRARIES:
        raise ToolCallRefusal(f"'{library}' cannot be looked up; available: {', '.join(LIBRARIES)}")
    root = _root(library)
    if root is None:
        raise ToolCallRefusal(f"{library} is not installed here")
    if not parts:
        raise ToolCallRefusal(f"name something of {library}, such as a class: {library}.NAME")
    places = _definitions(root, parts)
    if not places:
        raise ToolCallRefusal(f"{library} {version(library)} defines no '{'.'.join(parts)}' in Python")
    sentences = [
        f"{place.path.relative_to(root.parent)}:{place.node.lineno}\n{_text(place.node)}"
        for place in places[:MOST_MATCHES]
    ]
    more = f"; {len(places) - MOST_MATCHES} more of this name" if len(places) > MOST_MATCHES else ""
    return f"{arguments.name}, {library} {version(library)}{more}\n{enclose('documentation', chr(10).join(sentences))}"


def _root(library: str) -> Path | None:
    # The spec of a top-level package is found without importing it.
    spec = find_spec(library)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _definitions(root: Path, parts: list[str]) -> list[_Place]:
    """Return where the last names are defined: ``Class.method``, or one name; inner modules may be named before."""
    *outer, name = parts
    owner = outer[-1] if outer and outer[-1][:1].isupper() else ""
    top = owner or name
    places: list[_Place] = []
    for path in _holding(root, top):
        for node in _read(path).body:
            if isinstance(node, _Definition) and node.name == top:
                inner = [stmt for stmt in node.body if isinstance(stmt, _Definition) and stmt.name == name]
                places += [_Place(path, value) for value in (inner if owner else [node])]
    # Documented ones first: stubs and wrappers of the same name say nothing.
    return sorted(places, key=lambda place: (ast.get_docstring(place.node) is None, len(place.path.parts)))


@lru_cache(maxsize=64)
def _holding(root: Path, name: str) -> tuple[Path, ...]:
    """Return the files that define a name at their top level, by their text."""
    marks = tuple(f"{word} {name}{end}".encode() for word in ("class", "def") for end in ("(", ":", "["))
    return tuple(path for path in _files(root) if any(mark in path.read_bytes() for mark in marks))


def _files(root: Path) -> Iterator[Path]:
    for suffix in ("*.py", "*.pyi"):
        for path in sorted(root.rglob(suffix)):
            if "tests" not in path.relative_to(root).parts and path.stat().st_size <= MOST_FILE:
                yield path


@lru_cache(maxsize=8)
def _read(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])


def _text(node: _Definition) -> str:
    """Return signature and docstring; of a class also its fields and the signature of its constructor."""
    parts = [_signature(node)]
    if isinstance(node, ast.ClassDef):
        parts += [f"    {ast.unparse(stmt)}" for stmt in node.body if isinstance(stmt, ast.AnnAssign)]
        parts += [
            f"    {_signature(stmt)}" for stmt in node.body if isinstance(stmt, _Definition) and stmt.name == "__init__"
        ]
    parts.append(plain(ast.get_docstring(node) or "(no docstring)", DOCSTRING))
    return "\n".join(parts)


def _signature(node: _Definition) -> str:
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(expr) for expr in node.bases)
        return f"class {node.name}({bases})"
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"def {node.name}({ast.unparse(node.args)}){returned}"
