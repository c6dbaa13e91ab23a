"""Which changes of the deciding code the tests notice: mutants drawn by a seed, each against its modules' own tests.

    .venv/bin/python -m bench.mutants                     # every target: 36 mutants of each
    .venv/bin/python -m bench.mutants decide --sample 100 --seed 2
    .venv/bin/python -m bench.mutants decide --all --workers 1

A mutant is one change of one expression or statement (DeMillo, Lipton and Sayward 1978): another comparison, ``and``
for ``or``, a condition negated, a constant moved, a returned value or a raised error taken away. It is killed when a
test of the target's own files fails. There is no peer: a sample says what share of all mutants dies, within its Wilson
interval, and lists those that live.

The tests are imported once. Each mutant is a fork of that process in which the functions of the changed module get
their new code; a process that a test starts finds the change in a copy of the project. Tests that killed a
neighbour run first. Hypothesis draws the same examples in every run.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import importlib
import json
import math
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple, NoReturn

import pytest

from reviews.statistics.mcnemar import wilson

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("agents", "sessions", "specs", "training", "reviews", "tests", "bench", "pyproject.toml", "constitution.yaml")
QUICK = "not integration and not model and not nightly and not slow"
TEST_SECONDS = 600
CPU_SECONDS = 120
"""What a mutant may compute: a loop without an end takes it all; a busy machine makes its tests wait, not compute."""
MEMORY_BYTES = 4 << 30
"""What a mutant may take on top of the imports: a loop without an end would fill the machine."""


class Target(NamedTuple):
    """Modules, the test files that are their own, and the share of the mutants that these must kill."""

    files: tuple[str, ...]
    tests: tuple[str, ...]
    limit: float


TARGETS = {
    "decide": Target(
        ("reviews/gate/decide.py", "reviews/gate/panel.py"),
        ("tests/reviews/gate/test_decide.py", "tests/reviews/gate/test_panel.py"),
        0.9,
    ),
    "measure": Target(
        ("reviews/stages/row_metrics.py", "reviews/stages/evaluation/pairwise_judge.py"),
        (
            "tests/reviews/gate/test_measure.py",
            "tests/stages/evaluation/test_measure_evaluation.py",
            "tests/reviews/audit/test_trace_parts.py",
        ),
        0.9,
    ),
    "grants": Target(
        ("reviews/gate/grants.py",),
        ("tests/reviews/gate/test_grants.py", "tests/reviews/gate/test_conditions.py"),
        0.9,
    ),
    "trail": Target(
        ("reviews/trail/trail.py", "reviews/trail/integrity.py", "reviews/trail/tree.py"),
        (
            "tests/reviews/trail/test_trail.py",
            "tests/reviews/trail/test_append.py",
            "tests/reviews/trail/test_policy_changes.py",
            "tests/reviews/trail/test_signed_head.py",
            "tests/reviews/trail/test_merkle.py",
        ),
        0.9,
    ),
    "statistics": Target(
        (
            "reviews/statistics/mcnemar.py",
            "reviews/statistics/paired_binary.py",
            "reviews/statistics/paired_continuous.py",
        ),
        (
            "tests/reviews/statistics/test_statistics.py",
            "tests/reviews/statistics/test_parts.py",
            "tests/reviews/statistics/test_paired_binary.py",
            "tests/reviews/statistics/test_paired_continuous.py",
        ),
        0.83,
    ),
    "losses": Target(("training/rules/finetuning/losses.py",), ("tests/stages/finetuning/test_losses.py",), 0.9),
}


class Mutant(NamedTuple):
    """One change of a module."""

    file: str
    line: int
    before: str
    after: str
    number: int = -1
    """Which node of the module, in the order in which they are visited; none is changed for -1."""
    other: ast.AST = ast.Pass()
    """The node that replaces it."""

    def tree(self) -> ast.Module:
        """Return the changed module."""
        tree = _tree(self.file)
        _Put(self.number, self.other).visit(tree)
        return ast.fix_missing_locations(tree)


_OTHER: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_SUM: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
}  # fmt: skip


def _changed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield every other form of a node."""
    other = copy.deepcopy(node)
    match other:
        case ast.Compare(ops=[op, *rest]) if type(op) in _OTHER:
            other.ops = [_OTHER[type(op)](), *rest]
            yield other
        case ast.BoolOp(op=op):
            other.op = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield other
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            yield inner
        case ast.BinOp(op=op) if type(op) in _SUM:
            other.op = _SUM[type(op)]()
            yield other
        case ast.Constant(value=bool(value)):
            other.value = not value
            yield other
        case ast.Constant(value=int(value) | float(value)):
            other.value = value + 1
            yield other
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            other.test = ast.UnaryOp(ast.Not(), test)
            yield other
        case ast.Return(value=value) if value is not None and not (
            isinstance(value, ast.Constant) and value.value is None
        ):
            other.value = ast.Constant(None)
            yield other
        case ast.Raise() | ast.Expr(value=ast.Yield() | ast.Call()):
            yield ast.Pass()
        case ast.Continue():
            yield ast.Break()
        case _:
            return


class _Put(ast.NodeTransformer):
    def __init__(self, number: int, other: ast.AST) -> None:
        self._left, self._other = number, other

    def visit(self, node: ast.AST) -> ast.AST:
        self._left -= 1
        return ast.copy_location(self._other, node) if self._left == -1 else self.generic_visit(node)


def _visited(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes in the order in which the transformer visits them."""
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _visited(child)


def mutants(file: str) -> list[Mutant]:
    """Return every mutant of a module's functions; what is only types or defaults of the module itself is left out."""
    tree = _tree(file)
    inside = {
        id(part)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for statement in function.body
        for part in ast.walk(statement)
    }
    found: list[Mutant] = []
    for number, node in enumerate(_visited(tree)):
        if id(node) not in inside:
            continue
        for other in _changed(node):
            found.append(Mutant(file, getattr(node, "lineno", 0), _short(node), _short(other), number, other))
    return found


def _tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


def _short(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:70]


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
    mine = [one for one in functions if one.__code__.co_filename == place]
    if not mine:
        raise ImportError(f"no test imports {mutant.file}")
    for one in mine:
        one.__code__ = codes[one.__code__.co_qualname, one.__code__.co_firstlineno]


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
        found = folder / "found.json"
        failed, seconds, modules = json.loads(found.read_text(encoding="utf-8")) if code == 0 else ("", {}, [])
        if mutant is None:
            self._seconds.update(seconds)
            _import(modules)
            self._functions = _functions({str(ROOT / one.file) for one in self._drawn})
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
        near = [abs(one.line - mutant.line) for one in self._kills[test] if one.file == mutant.file] if mutant else []
        return min(near, default=math.inf), self._seconds[test]

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
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
            if mutant is not None:
                _put(mutant, self._functions, folder)
            items = sorted(session.items, key=lambda item: self._rank(item.nodeid, mutant))
            self._seconds.clear()
            for item, following in zip(items, [*items[1:], None], strict=True):
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if self._failed:
                    break
            found = [self._failed, self._seconds, list(sys.modules)]
            (folder / "found.json").write_text(json.dumps(found), encoding="utf-8")
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
    found = [one for one in gc.get_objects() if isinstance(one, FunctionType) and one.__code__.co_filename in places]
    # A fork that collects what it did not make copies all of it.
    gc.freeze()
    return found


@contextmanager
def _silenced() -> Generator[None]:
    """Send what pytest writes nowhere."""
    sys.stdout.flush()
    kept = os.dup(1)
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _copy(folder: Path) -> Path:
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def judge_target(name: str, sample: int | None, seed: int, workers: int) -> NoReturn:
    """Draw mutants of one target, print those that live, and exit with 0 where enough died."""
    target = TARGETS[name]
    every = [one for file in target.files for one in mutants(file)]
    drawn = every if sample is None else random.Random(seed).sample(every, min(sample, len(every)))
    with tempfile.TemporaryDirectory() as scratch, _silenced():
        folders = [Path(scratch) / str(number) for number in range(workers)]
        for folder in folders:
            folder.mkdir()
            _copy(folder)
        judge = Judge(drawn, folders)
        given = ["-q", "-n0", "-p", "no:cacheprovider", "-o", f"timeout={TEST_SECONDS}", "-m", QUICK, *target.tests]
        pytest.main(["--rootdir", str(ROOT), *given], plugins=[judge])
    if judge.mistake:
        raise SystemExit(f"{name}: {judge.mistake}")
    for one in sorted(judge.alive, key=lambda one: one[:2]):
        print(f"  lives  {one.file}:{one.line}  {one.before}  ->  {one.after}")
    dead = len(drawn) - len(judge.alive)
    low, high = wilson(dead, len(drawn))
    rate = dead / len(drawn)
    verdict = "kept" if rate >= target.limit else "missed"
    print(
        f"{name}: {dead} of {len(drawn)} mutants killed (of {len(every)}), {rate:.0%} [{low:.0%}, {high:.0%}]; "
        f"limit {target.limit:.0%}: {verdict}",
        flush=True,
    )
    sys.exit(0 if rate >= target.limit else 1)


def main() -> None:
    """Judge the targets that were named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--sample", type=int, default=36)
    parser.add_argument("--all", action="store_true", help="every mutant instead of a sample")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    os.chdir(ROOT)
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    sample = None if given.all else given.sample
    kept = True
    for name in given.targets or TARGETS:
        # A process each: pytest imports the tests once.
        one = multiprocessing.get_context("fork").Process(
            target=judge_target, args=(name, sample, given.seed, given.workers)
        )
        one.start()
        one.join()
        kept = kept and one.exitcode == 0
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
