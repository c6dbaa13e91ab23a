"""Runs a program, or its tests: the source is the whole command of a sandbox, and imports the standard library alone.

The two never share a process. Tests call the function over pipes, so the program sees arguments and nothing else, and
what comes back is data that the tests' process makes anew: numbers, texts and containers of Python's own types.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import resource
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any, NoReturn

DEEPEST = 50
_CONTAINERS: dict[str, Callable[[list[Any]], Any]] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
_ENDING = (StopIteration, StopAsyncIteration)
"""What a loop takes for its end: a function that raises it would cut a test short."""


def main() -> None:
    """Play the part that the first line of the input names; every answer is one line of JSON."""
    given = json.loads(sys.stdin.readline())
    for name, most in given["limits"].items():
        resource.setrlimit(getattr(resource, "RLIMIT_" + name), (most, most))
    answering, nothing = os.dup(1), os.open(os.devnull, os.O_RDWR)
    # What a program prints is no answer.
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)

    def say(**said: Any) -> None:
        left = memoryview(json.dumps(said).encode() + b"\n")
        while left:
            left = left[os.write(answering, left) :]

    (run_tests if "tests" in given else run_program)(given, say)


def run_program(given: dict[str, Any], say: Callable[..., None]) -> None:
    """Define the function, and answer each call."""
    name = given["entry_point"]
    try:
        tree = ast.parse(given["program"])
        compiled = compile(tree, "program", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return say(step="invalid", why=type(error).__name__)
    if not any(defines(node, name) for node in tree.body):
        return say(step="empty", why="the function is missing, or its body is empty")
    say(step="valid")
    space: dict[str, Any] = {"__name__": "program"}
    try:
        exec(compiled, space)
    except BaseException as error:
        return say(step="failed", why=type(error).__name__)
    say(step="ran")
    for line in sys.stdin:
        args, named = unpacked(json.loads(line)["call"])
        try:
            found: dict[str, Any] = {"value": packed(space[name](*args, **named))}
        except BaseException as error:
            found = {"raised": _raised(error)}
        say(step="called", **found)


def run_tests(given: dict[str, Any], say: Callable[..., None]) -> None:
    """Run the tests: what the problem's own text defines is there, and its function is the program's."""

    def fail(why: str) -> NoReturn:
        say(step="failed", why=why)
        os._exit(0)  # No test may catch it.

    def called(*args: Any, **named: Any) -> Any:
        say(step="call", call=packed((args, named)))
        line = sys.stdin.readline()
        try:
            said = json.loads(line)
            if "raised" not in said:
                return unpacked(said["value"])
            name, args = said["raised"]
            error = getattr(builtins, name)
            if not issubclass(error, Exception) or issubclass(error, _ENDING):
                fail(name)
            error = error(*unpacked(args))
        except Exception:
            fail("a call was not answered by a value")
        raise error

    space: dict[str, Any] = {"__name__": "tests"}
    try:
        exec(_opened(given["prompt"]), space)
        space[given["entry_point"]] = called
        exec(compile(given["tests"], "tests", "exec"), space)
    except BaseException as error:
        return say(step="failed", why=type(error).__name__)
    say(step="passed")


def _opened(prompt: str) -> CodeType:
    """Compile the beginning of a function, which is whole with a docstring."""
    try:
        return compile(prompt, "prompt", "exec")
    except SyntaxError:
        return compile(prompt + "\n    pass\n", "prompt", "exec")


def defines(node: ast.stmt, name: str) -> bool:
    """Say whether a statement defines the function, with a body that does something."""
    if not isinstance(node, ast.FunctionDef) or node.name != name:
        return False
    return any(
        not isinstance(one, ast.Pass) and not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
        for one in node.body
    )


def packed(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON; raises TypeError for what is not of a type of Python's own: it may equal anything."""
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return {"int": hex(value)}
    if kind is float:
        return {"float": value.hex()}
    if kind is complex:
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if kind is bytes:
        return {"bytes": value.hex()}
    if depth < DEEPEST and kind is dict:
        return {"dict": [[packed(one, depth + 1) for one in pair] for pair in value.items()]}
    if depth < DEEPEST and kind in (list, tuple, set, frozenset):
        return {kind.__name__: [packed(one, depth + 1) for one in value]}
    raise TypeError("not of a type of Python's own")


def unpacked(value: Any) -> Any:
    """Return what was packed; raises an Exception for what nobody packed."""
    if value is None or type(value) in (bool, str):
        return value
    ((name, held),) = value.items()
    if name in _CONTAINERS:
        return _CONTAINERS[name]([unpacked(one) for one in held])
    if name == "dict":
        return {unpacked(key): unpacked(one) for key, one in held}
    if name == "complex":
        return complex(*map(float.fromhex, held))
    return {"int": lambda: int(held, 16), "float": lambda: float.fromhex(held), "bytes": lambda: bytes.fromhex(held)}[
        name
    ]()


def _raised(error: BaseException) -> list[Any]:
    """Return the name of Python's own type of an exception, and its arguments as far as they are plain."""
    name = next(one.__name__ for one in type(error).__mro__ if one.__module__ == "builtins")
    try:
        return [name, packed(error.args)]
    except TypeError:
        return [name, packed(())]


if __name__ == "__main__":
    main()
