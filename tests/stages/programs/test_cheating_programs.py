"""Programs that try to pass without being right. The control: each deceives a judge that shares its process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specs.system.confinement.program_process import Program, ProgramLimits, run_all
from specs.system.confinement.program_runner import pack_value, unpack_value
from testing.fixtures.sandbox import needs_sandbox

NAIVE = """
import json, sys
given = json.load(sys.stdin)
space = {}
exec(compile(given["prompt"] + "    return\\n", "prompt", "exec"), space)
exec(compile(given["program"], "program", "exec"), space)
exec(compile(given["tests"], "tests", "exec"), space)
print("passed")
"""
"""A judge as many are: the program, its tests and the word that they passed in one process."""
TESTS = "assert f(2) == 4\nassert f(3) == 9\n"
PROMPT = "def g(x):\n    return x + 1\n\ndef f(x):\n"
FROM_TESTS = "return int(re.search(rf'f\\({x}\\) == (\\d+)', one['tests'])[1])\n"

pytestmark = needs_sandbox


class Cheat(NamedTuple):
    """A program, the tests that it passes without being right, and what becomes of it."""

    text: str
    why: str
    tests: str = TESTS


CHEATS = {
    "the marker is printed": Cheat(
        "import os\ndef f(x):\n    os.write(1, b'passed')\n    os._exit(0)\n", "its process ended with code 0"
    ),
    "the marker is printed when it fails": Cheat(
        "import sys\nsys.excepthook = lambda *_: print('passed')\ndef f(x):\n    return 1\n", "AssertionError"
    ),
    "the tests are read from frames": Cheat(
        "import re, sys\ndef f(x):\n    frame = sys._getframe()\n    while frame:\n"
        "        for one in [*frame.f_globals.values(), *frame.f_locals.values()]:\n"
        f"            if isinstance(one, dict) and 'tests' in one:\n                {FROM_TESTS}"
        "        frame = frame.f_back\n",
        "AssertionError",
    ),
    "the tests are read from memory": Cheat(
        "import gc, re\ndef f(x):\n    for one in gc.get_objects():\n"
        "        one = one.get('given') if isinstance(one, dict) else None\n"
        f"        if isinstance(one, dict) and 'tests' in one:\n            {FROM_TESTS}",
        "AssertionError",
    ),
    "exec does nothing": Cheat(
        "import builtins\nbuiltins.exec = lambda *_: None\ndef f(x):\n    return 1\n", "AssertionError"
    ),
    "asserts are compiled away": Cheat(
        "import builtins\nold = compile\nbuiltins.compile = lambda *given: old(*given, optimize=2)\n"
        "def f(x):\n    return 1\n",
        "AssertionError",
    ),
    "other tests are compiled": Cheat(
        "import builtins\nold = compile\nbuiltins.compile = lambda *_: old('', '', 'exec')\ndef f(x):\n    return 1\n",
        "AssertionError",
    ),
    "the result equals everything": Cheat(
        "class E(int):\n    __eq__ = lambda *_: True\ndef f(x):\n    return E()\n", "TypeError"
    ),
    "a loop is ended": Cheat(
        "def f(x):\n    raise StopIteration\n", "StopIteration", "assert all(map(lambda x: f(x) == x * x, [2, 3]))\n"
    ),
    "its arguments are changed": Cheat(
        "def f(xs):\n    xs.clear()\n    return []\n", "AssertionError", "xs = [3, 1, 2]\nassert f(xs) == sorted(xs)\n"
    ),
    "what the tests use is defined again": Cheat(
        "def g(x):\n    return 5\ndef f(x):\n    return 1\n", "AssertionError", "assert g(f(4)) == 5\n"
    ),
    "solutions of an installed benchmark are read": Cheat(
        "import pathlib, sys\nFOUND = [one for root in {sys.prefix, sys.base_prefix, '/usr', '/usr/local'}\n"
        "    for one in pathlib.Path(root).glob('lib*/python3*/*-packages/*')]\n"
        "def f(x):\n    return x * x if FOUND else 1\n",
        "AssertionError",
    ),
}


def judged(text: str, tests: str = TESTS) -> tuple[str, str]:
    (ending,) = run_all([Program(text, "f", tests, PROMPT)], ProgramLimits(2, 128))
    return ending


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_does_not_pass(name: str) -> None:
    text, why, tests = CHEATS[name]
    output = json.dumps({"program": text, "tests": tests, "prompt": PROMPT})
    naive = subprocess.run([sys.executable, "-c", NAIVE], input=output, capture_output=True, text=True, check=False)
    assert naive.stdout.strip() == "passed", "the control: it works where program and tests share a process"
    assert judged(text, tests) == ("failed", why)


ANSWERS = "import __main__\n__main__.pack_value = lambda *_: {}\ndef f(x):\n    return 1\n"
RAISES = "import __main__\n__main__._describe_exception = lambda _: {}\ndef f(x):\n    raise ValueError\n"
UNREAD = "a call was not answered by a value"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (ANSWERS.format("{'list': 'no'}"), "AssertionError"),
        (ANSWERS.format("{'object': 1}"), UNREAD),
        (ANSWERS.format("{'set': [{'list': []}]}"), UNREAD),
        (ANSWERS.format("[1, 2]"), UNREAD),
        (ANSWERS.format("1"), UNREAD),
        (ANSWERS.format("{'int': 'x'}"), UNREAD),
        (ANSWERS.format("'x' * 2000000"), "it sent an unrequested message"),
        (RAISES.format("['StopIteration', {'tuple': []}]"), "StopIteration"),
        (RAISES.format("['SystemExit', {'tuple': []}]"), "SystemExit"),
        (RAISES.format("['print', {'tuple': []}]"), UNREAD),
        (RAISES.format("['__import__', {'tuple': ['os']}]"), UNREAD),
        (RAISES.format("[1]"), UNREAD),
        (RAISES.format("['ValueError', {'tuple': []}]"), "ValueError"),
    ],
)  # fmt: skip
def test_what_is_sent_in_place_of_a_result_is_no_result(text: str, why: str) -> None:
    """The program replaces what packs its results: the process of the tests makes values of it, or refuses it."""
    # Nothing that a function does may be caught by the tests as if it had happened to them.
    tests = f"try:\n    f(2)\nexcept RuntimeError:\n    pass\n{TESTS}"
    assert judged(text, tests) == ("failed", why)


_LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
_HASHED = st.recursive(
    _LEAVES | st.complex_numbers(allow_nan=False), lambda strategy: st.lists(strategy, max_size=3).map(tuple)
)
VALUES = st.recursive(
    _HASHED | st.frozensets(_HASHED, max_size=3) | st.sets(_HASHED, max_size=3),
    lambda strategy: st.lists(strategy, max_size=3) | st.dictionaries(_HASHED, strategy, max_size=3),
)
TAGS = ("int", "float", "list", "set", "dict", "complex", "bytes", "other")
SENT = st.recursive(
    _LEAVES.filter(lambda number: not isinstance(number, bytes)),
    lambda strategy: (
        st.lists(strategy, max_size=3)
        | st.dictionaries(
            st.sampled_from(["int", "float", "list", "set", "dict", "complex", "bytes", "x"]), strategy, max_size=2
        )
    ),
)


@given(VALUES)
@settings(max_examples=100, deadline=None)
def test_a_value_is_the_same_on_the_other_side(value: Any) -> None:
    again = unpack_value(json.loads(json.dumps(pack_value(value))))
    assert repr(again) == repr(value) or (again == value and type(again) is type(value))


@given(SENT)
@settings(max_examples=200, deadline=None)
def test_whatever_is_sent_is_plain_or_refused(sent: Any) -> None:
    try:
        result = unpack_value(sent)
    except Exception:
        return
    pack_value(result)  # It refuses what is not of a built-in type.


@pytest.mark.parametrize(
    ("result", "tests"),
    [
        ("[1, (2, 3.5), {'a': {None, True}}, b'x', 2j, frozenset('a'), -(10**5000), 'ü\\ud800']", "assert f(0) == {}"),
        ("float('nan')", "found = f(0)\nassert type(found) is float and found != found"),
        ("(float('inf'), -0.0)", "assert str(f(0)) == '(inf, -0.0)'"),
        ("x == 0", "assert f(0) is True"),
        ("1 // x", "try:\n    f(0)\n    raise OSError\nexcept ZeroDivisionError as e:\n    assert 'zero' in str(e)"),
        ("g(x)", "assert f(*[1]) == f(x=1) == g(1) == 2"),
    ],
)
def test_values_and_exceptions_arrive_as_they_are(result: str, tests: str) -> None:
    text = f"def g(x):\n    return x + 1\ndef f(x):\n    return {result}\n"
    assert judged(text, tests.replace("{}", result)) == ("passed", "")
