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
    arguments = json.loads(sys.stdin.readline())
    for name, most in arguments["limits"].items():
        resource.setrlimit(getattr(resource, "RLIMIT_" + name), (most, most))
    answering, nothing = os.dup(1), os.open(os.devnull, os.O_RDWR)
    # What a program prints is not an answer.
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)

    def say(**statements: Any) -> None:
        data = memoryview(json.dumps(statements).encode() + b"\n")
        while data:
            data = data[os.write(answering, data) :]

    (run_tests if "tests" in arguments else run_program)(arguments, say)


def run_program(arguments: dict[str, Any], say: Callable[..., None]) -> None:
    """Define the function, and answer each call."""
    name = arguments["entry_point"]
    try:
        tree = ast.parse(arguments["program"])
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
        args, named = unpack_value(json.loads(line)["call"])
        try:
            results: dict[str, Any] = {"value": pack_value(space[name](*args, **named))}
        except BaseException as error:
            results = {"raised": _describe_exception(error)}
        say(step="called", **results)


def run_tests(arguments: dict[str, Any], say: Callable[..., None]) -> None:
    """Run the tests: what the problem's own text defines is there, and its function is the program's."""

    def fail(why: str) -> NoReturn:
        say(step="failed", why=why)
        os._exit(0)  # No test may catch it.

    def call_program(*args: Any, **named: Any) -> Any:
        say(step="call", call=pack_value((args, named)))
        line = sys.stdin.readline()
        try:
            statement = json.loads(line)
            if "raised" not in statement:
                return unpack_value(statement["value"])
            name, args = statement["raised"]
            error = getattr(builtins, name)
            if not issubclass(error, Exception) or issubclass(error, _ENDING):
                fail(name)
            error = error(*unpack_value(args))
        except Exception:
            fail("a call was not answered by a value")
        raise error

    space: dict[str, Any] = {"__name__": "tests"}
    try:
        exec(_compile_prompt(arguments["prompt"]), space)
        space[arguments["entry_point"]] = call_program
        exec(compile(arguments["tests"], "tests", "exec"), space)
    except BaseException as error:
        return say(step="failed", why=type(error).__name__)
    say(step="passed")


def _compile_prompt(prompt: str) -> CodeType:
    """Compile the beginning of a function, which is whole with a docstring."""
    try:
        return compile(prompt, "prompt", "exec")
    except SyntaxError:
        return compile(prompt + "\n    pass\n", "prompt", "exec")


def defines(node: ast.stmt, name: str) -> bool:
    """Return whether a statement defines the function, with a body that does something."""
    if not isinstance(node, ast.FunctionDef) or node.name != name:
        return False
    return any(
        not isinstance(stmt, ast.Pass) and not (isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant))
        for stmt in node.body
    )


def pack_value(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON; raises TypeError for what is not a built-in type: it may equal anything."""
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
        return {"dict": [[pack_value(value, depth + 1) for value in pair] for pair in value.items()]}
    if depth < DEEPEST and kind in (list, tuple, set, frozenset):
        return {kind.__name__: [pack_value(element, depth + 1) for element in value]}
    raise TypeError("not a built-in type")


def unpack_value(value: Any) -> Any:
    """Return what was packed; raises an Exception for what no one packed."""
    if value is None or type(value) in (bool, str):
        return value
    ((name, current),) = value.items()
    if name in _CONTAINERS:
        return _CONTAINERS[name]([unpack_value(value) for value in current])
    if name == "dict":
        return {unpack_value(key): unpack_value(value) for key, value in current}
    if name == "complex":
        return complex(*map(float.fromhex, current))
    return {
        "int": lambda: int(current, 16),
        "float": lambda: float.fromhex(current),
        "bytes": lambda: bytes.fromhex(current),
    }[name]()


def _describe_exception(error: BaseException) -> list[Any]:
    """Return the name of Python's own type of an exception, and its arguments as far as they are plain."""
    name = next(value.__name__ for value in type(error).__mro__ if value.__module__ == "builtins")
    try:
        return [name, pack_value(error.args)]
    except TypeError:
        return [name, pack_value(())]


if __name__ == "__main__":
    main()
