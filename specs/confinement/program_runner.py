"""Runs one program with its tests. Its source is the whole command of a sandbox: it imports the standard library alone.

The first line of the input holds the program, the second, sent when the program has run, its tests and a word that is
written once they have passed. A program that ends the process early never writes it. This finds accidents and lazy
tricks, not a program that was written to deceive: it runs in the process that judges it.
"""

from __future__ import annotations

import ast
import json
import os
import resource
import sys
from collections.abc import Callable
from typing import Any

PLAIN = (type(None), bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset)


def main() -> None:
    """Answer with one line of JSON after each step."""
    given = json.loads(sys.stdin.readline())
    for name, most in given["limits"].items():
        resource.setrlimit(getattr(resource, "RLIMIT_" + name), (most, most))
    answering, nothing = os.dup(1), os.open(os.devnull, os.O_RDWR)
    # What a program prints is no answer.
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)

    def say(**said: str) -> None:
        os.write(answering, json.dumps(said).encode() + b"\n")

    try:
        tree = ast.parse(given["program"])
        compiled = compile(tree, "program", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return say(step="invalid", why=type(error).__name__)
    if not any(defines(node, given["entry_point"]) for node in tree.body):
        return say(step="empty", why="the function is missing, or its body is empty")
    say(step="valid")
    space: dict[str, Any] = {"__name__": "program"}
    try:
        exec(compiled, space)
        say(step="ran")
        asked = json.loads(sys.stdin.readline())
        space[given["entry_point"]] = plain(space[given["entry_point"]])
        exec(compile(asked["tests"], "tests", "exec"), space)
    except BaseException as error:
        return say(step="failed", why=type(error).__name__)
    say(step="passed", word=asked["word"])


def defines(node: ast.stmt, name: str) -> bool:
    """Say whether a statement defines the function, with a body that does something."""
    if not isinstance(node, ast.FunctionDef) or node.name != name:
        return False
    return any(
        not isinstance(one, ast.Pass) and not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
        for one in node.body
    )


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with results of Python's own types only: an object may say that it equals anything."""

    def check(value: Any, depth: int = 0) -> None:
        if type(value) not in PLAIN or depth > 20:
            raise TypeError("not of a type of Python's own")
        if isinstance(value, dict):
            value = [*value.keys(), *value.values()]
        for one in value if isinstance(value, (list, tuple, set, frozenset)) else ():
            check(one, depth + 1)

    def called(*given: Any, **named: Any) -> Any:
        found = function(*given, **named)
        check(found)
        return found

    return called


if __name__ == "__main__":
    main()
