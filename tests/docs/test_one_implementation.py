"""One implementation per concern: no two functions of more than a few lines do the same under other names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from specs.system.home import HOME, PACKAGES

LONGEST = 15
"""Lines from which on two equal functions are one too many."""


def normalised(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return a function's body with every name replaced by the order in which it appears, without its docstring."""
    names: dict[str, str] = {}
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    for node in ast.walk(ast.Module(body=body, type_ignores=[])):
        for field in ("id", "arg"):
            if isinstance(name := getattr(node, field, None), str):
                setattr(node, field, names.setdefault(name, f"v{len(names)}"))
    return "\n".join(ast.dump(statement) for statement in body)


def functions(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the long functions of a file: where each is, and what it does."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > LONGEST:
                yield f"{path.name}:{node.lineno} {node.name}", normalised(node)


def twins(paths: list[Path]) -> list[list[str]]:
    """Return the places of functions that do the same."""
    results: dict[str, list[str]] = {}
    for path in paths:
        for where, body in functions(path):
            results.setdefault(body, []).append(where)
    return [places for places in results.values() if len(places) > 1]


def test_no_two_functions_are_the_same() -> None:
    assert twins([path for package in PACKAGES for path in sorted((HOME / package).rglob("*.py"))]) == []


def test_a_copy_under_other_names_is_found(tmp_path: Path) -> None:
    lines = "".join(f"    total = total + {n} * each\n" for n in range(16))
    text = f'def loss(each):\n    """Return it."""\n    total = 0\n{lines}    return total\n'
    (tmp_path / "a.py").write_text(text, encoding="utf-8")
    (tmp_path / "b.py").write_text(text.replace("loss", "cost").replace("total", "sum_").replace("each", "one"))
    assert len(twins([tmp_path / "a.py", tmp_path / "b.py"])) == 1
    (tmp_path / "b.py").write_text(text.replace("+ 3 *", "- 3 *"), encoding="utf-8")
    assert twins([tmp_path / "a.py", tmp_path / "b.py"]) == []
