"""Which changes of the deciding code the tests notice: mutants drawn by a seed, each against its module's own tests.

    .venv/bin/python -m bench.mutants                     # decide, measure, grants: 36 of each
    .venv/bin/python -m bench.mutants decide --sample 100 --seed 2

A mutant is one change of one expression or statement (DeMillo, Lipton and Sayward 1978): another comparison, ``and``
for ``or``, a condition negated, a constant moved, a returned value or a raised error taken away. It is killed when a
test of the module's own files fails. The limit: 90 % of the sample of each module. There is no peer: a sample says what
share of all mutants dies, within its Wilson interval, and lists those that live.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from reviews.statistics.mcnemar import wilson

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("agents", "sessions", "specs", "training", "reviews", "tests", "bench", "pyproject.toml", "constitution.yaml")
LIMIT = 0.9
TIMEOUT_S = 300


class Target(NamedTuple):
    """A module and the test files that are its own."""

    file: str
    tests: tuple[str, ...]


TARGETS = {
    "decide": Target("reviews/gate/decide.py", ("tests/unit/test_decide.py", "tests/unit/test_panel.py")),
    "measure": Target(
        "reviews/stages/evaluation/measure.py", ("tests/unit/test_measure.py", "tests/unit/test_measure_evaluation.py")
    ),
    "grants": Target("reviews/gate/grants.py", ("tests/unit/test_grants.py",)),
}


class Mutant(NamedTuple):
    """One change."""

    line: int
    before: str
    after: str
    source: str


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


def mutants(source: str) -> list[Mutant]:
    """Return every mutant of a module's functions; what is only types or defaults of the module itself is left out."""
    tree = ast.parse(source)
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
            changed = ast.fix_missing_locations(_Put(number, other).visit(copy.deepcopy(tree)))
            line = getattr(node, "lineno", 0)
            found.append(Mutant(line, _short(node), _short(other), ast.unparse(changed)))
    return found


def _short(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:70]


def killed(folder: Path, target: Target, mutant: Mutant | None) -> bool:
    """Say whether a test fails in a copy of the project with a mutant; None is the module as it is."""
    place = folder / target.file
    original = (ROOT / target.file).read_text(encoding="utf-8")
    place.write_text(mutant.source if mutant else ast.unparse(ast.parse(original)), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", *target.tests]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, timeout=TIMEOUT_S, check=False, env=_environ(folder)
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def _environ(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}


def _copy(folder: Path) -> Path:
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def judged(name: str, sample: int, seed: int, workers: int) -> bool:
    """Draw mutants of one module, print those that live, and say whether enough died."""
    target = TARGETS[name]
    every = mutants((ROOT / target.file).read_text(encoding="utf-8"))
    drawn = random.Random(seed).sample(every, min(sample, len(every)))
    with tempfile.TemporaryDirectory() as scratch:
        folders = [_copy(Path(scratch) / str(number)) for number in range(workers)]
        if killed(folders[0], target, None):
            raise SystemExit(f"{name}: its tests fail without a change: {', '.join(target.tests)}")

        def share(number: int) -> list[Mutant]:
            return [one for one in drawn[number::workers] if not killed(folders[number], target, one)]

        with ThreadPoolExecutor(workers) as pool:
            alive = [one for part in pool.map(share, range(workers)) for one in part]
    for one in sorted(alive):
        print(f"  lives  {target.file}:{one.line}  {one.before}  ->  {one.after}")
    dead = len(drawn) - len(alive)
    low, high = wilson(dead, len(drawn))
    rate = dead / len(drawn)
    verdict = "kept" if rate >= LIMIT else "missed"
    print(
        f"{name}: {dead} of {len(drawn)} mutants killed (of {len(every)}), {rate:.0%} [{low:.0%}, {high:.0%}]; "
        f"limit {LIMIT:.0%}: {verdict}",
        flush=True,
    )
    return rate >= LIMIT


def main() -> None:
    """Judge the modules that were named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=", ".join(TARGETS))
    parser.add_argument("--sample", type=int, default=36)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    kept = [judged(name, given.sample, given.seed, given.workers) for name in given.modules or TARGETS]
    sys.exit(0 if all(kept) else 1)


if __name__ == "__main__":
    main()
