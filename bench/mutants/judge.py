"""Runs the tests once for each mutant, in a fork in which the functions of the changed module have their new code."""

from __future__ import annotations

import ast
import gc
import importlib
import json
import math
import os
import resource
import shutil
import signal
import sys
import traceback
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import NoReturn

import pytest

from bench.mutants.changes import ROOT, Mutant

CPU_SECONDS = 120
"""What a mutant may compute: a loop without an end takes it all; a busy machine makes its tests wait, not compute."""
MEMORY_BYTES = 4 << 30
"""What a mutant may take on top of the imports: a loop without an end would fill the machine."""


def _codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    """Yield the code of every function of a compiled module with its name and first line."""
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield (part.co_qualname, part.co_firstlineno), part
            yield from _codes(part)


def _put(mutant: Mutant, functions: list[FunctionType], folder: Path) -> None:
    """Change the imported functions of a module, wherever they were imported to, and the file of a copy."""
    tree = mutant.tree()
    (folder / mutant.file).write_text(ast.unparse(tree), encoding="utf-8")
    place = str(ROOT / mutant.file)
    codes = dict(_codes(compile(tree, place, "exec")))
    mine = [function for function in functions if function.__code__.co_filename == place]
    if not mine:
        raise ImportError(f"no test imports {mutant.file}")
    for function_type in mine:
        function_type.__code__ = codes[function_type.__code__.co_qualname, function_type.__code__.co_firstlineno]


class Judge:
    """A plugin of pytest: runs the collected tests once for each mutant."""

    def __init__(self, drawn: list[Mutant], folders: list[Path]) -> None:
        self._drawn = drawn
        self._folders = folders
        self._kills: defaultdict[str, list[Mutant]] = defaultdict(list)
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._failed = ""
        self._functions: list[FunctionType] = []
        self.alive: list[Mutant] = []
        self.mistake = "its tests cannot be collected"

    @property
    def judged(self) -> int:
        """Return how many mutants were found dead or alive."""
        return len(self.alive) + sum(map(len, self._kills.values()))

    def pytest_configure(self) -> None:
        """Have Hypothesis draw the same examples for each mutant; a busy machine fails none of them."""
        from hypothesis import HealthCheck, Phase, settings  # after pytest, which rewrites its asserts

        settings.register_profile(
            "mutants",
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=[HealthCheck.too_slow],
            # The first example that fails is enough; a smaller one is not looked for.
            phases=[Phase.explicit, Phase.generate],
        )
        settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how long a test took, and the first that failed."""
        self._seconds[report.nodeid] += report.duration
        if report.failed and not self._failed:
            self._failed = report.nodeid

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Judge the tests without a change, then every mutant, as many at once as there are copies."""
        self.mistake = ""
        same = Mutant(self._drawn[0].file, 0, "", "")
        waiting: list[Mutant | None] = [*reversed(self._drawn), same, None]
        free, running = list(self._folders), dict[int, tuple[Mutant | None, Path]]()
        while running or (waiting and not self.mistake):
            if waiting and free and not self.mistake and None not in [mutant for mutant, _ in running.values()]:
                mutant, folder = waiting.pop(), free.pop()
                running[self._forked(session, mutant, folder)] = mutant, folder
                continue
            process, status = os.wait()
            mutant, folder = running.pop(process)
            self._judged(mutant, folder, process, os.waitstatus_to_exitcode(status))
            free.append(folder)
        return True

    def _judged(self, mutant: Mutant | None, folder: Path, process: int, code: int) -> None:
        """Take over what a fork found, and clear away what it left."""
        with suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        path = folder / "found.json"
        failed, seconds, modules = json.loads(path.read_text(encoding="utf-8")) if code == 0 else ("", {}, [])
        if mutant is None:
            self._seconds.update(seconds)
            _import(modules)
            self._functions = _functions({str(ROOT / mutant.file) for mutant in self._drawn})
            if failed or code:
                self.mistake = f"its tests fail without a change: {failed or code}"
        elif code > 0:
            self.mistake = f"{mutant.file}:{mutant.line} cannot be judged: {(folder / 'output').read_text()[-2000:]}"
        elif not mutant.line:
            if failed or code:
                self.mistake = f"{mutant.file}: its tests fail where nothing is changed: {failed or code}"
        elif code == 0 and not failed:
            self.alive.append(mutant)
        else:
            self._kills[failed].append(mutant)
        if mutant is not None:
            shutil.copy(ROOT / mutant.file, folder / mutant.file)
        shutil.rmtree(folder / "temporary", ignore_errors=True)

    def _forked(self, session: pytest.Session, mutant: Mutant | None, folder: Path) -> int:
        (folder / "temporary").mkdir()
        process = os.fork()
        if process == 0:
            self._run(session, mutant, folder)
        return process

    def _rank(self, test: str, mutant: Mutant | None) -> tuple[float, float]:
        """Return when a test's turn is: first those that killed something near by, then the quick ones."""
        near = (
            [
                abs(current_mutant.line - mutant.line)
                for current_mutant in self._kills[test]
                if current_mutant.file == mutant.file
            ]
            if mutant
            else []
        )
        return min(near, default=math.inf), self._seconds[test]

    def _limit(self, mutant: Mutant | None) -> int:
        """Return how many seconds a fork may compute: several times what the tests take where nothing is changed."""
        usual = sum(self._seconds.values())
        return CPU_SECONDS if mutant is None or not usual else min(CPU_SECONDS, 10 + math.ceil(5 * usual))

    def _run(self, session: pytest.Session, mutant: Mutant | None, folder: Path) -> NoReturn:
        """Run the tests up to the first that fails, write down what was found, and end this process."""
        code = 1
        try:
            os.setpgid(0, 0)
            output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.chdir(folder)
            os.environ |= {
                "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1",
                "PYTEST_DEBUG_TEMPROOT": str(folder / "temporary"),
            }  # fmt: skip
            used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, used + MEMORY_BYTES))
            limit = self._limit(mutant)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            if mutant is not None:
                _put(mutant, self._functions, folder)
            items = sorted(session.items, key=lambda item: self._rank(item.nodeid, mutant))
            self._seconds.clear()
            for item, following in zip(items, [*items[1:], None], strict=True):
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if self._failed:
                    break
            results = [self._failed, self._seconds, list(sys.modules)]
            (folder / "found.json").write_text(json.dumps(results), encoding="utf-8")
            session.config.hook.pytest_sessionfinish(session=session, exitstatus=int(bool(self._failed)))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)


def _import(modules: list[str]) -> None:
    """Import what functions import when they are called, scipy above all: once, instead of in every fork."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in modules:
            with suppress(Exception):
                importlib.import_module(name)


def _functions(places: set[str]) -> list[FunctionType]:
    """Return the functions that were imported from some files."""
    gc.unfreeze()
    # ``isinstance`` asks an object for its class, and some warn when they are asked for anything.
    function_types = [
        value for value in gc.get_objects() if type(value) is FunctionType and value.__code__.co_filename in places
    ]
    # A fork that collects what it did not make copies all of it.
    gc.freeze()
    return function_types
