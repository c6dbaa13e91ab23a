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
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from bench.mutants.changes import ROOT, mutants
from bench.mutants.judge import Judge
from bench.mutants.targets import TARGETS
from reviews.statistics.mcnemar import wilson

COPIED = ("agents", "sessions", "specs", "training", "reviews", "tests", "bench", "pyproject.toml", "constitution.yaml")
QUICK = "not integration and not model and not nightly and not slow"
TEST_SECONDS = 600


@contextmanager
def _silenced() -> Generator[None]:
    """Send what pytest writes nowhere."""
    sys.stdout.flush()
    count = os.dup(1)
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(count, 1)
        os.close(count)


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
    every = [mutant for file in target.files for mutant in mutants(file)]
    drawn = every if sample is None else random.Random(seed).sample(every, min(sample, len(every)))
    with tempfile.TemporaryDirectory() as scratch, _silenced():
        folders = [Path(scratch) / str(number) for number in range(workers)]
        for folder in folders:
            folder.mkdir()
            _copy(folder)
        judge = Judge(drawn, folders)
        texts = ["-q", "-n0", "-p", "no:cacheprovider", "-o", f"timeout={TEST_SECONDS}", "-m", QUICK, *target.tests]
        pytest.main(["--rootdir", str(ROOT), *texts], plugins=[judge])
    if judge.mistake or judge.judged < len(drawn):
        # pytest keeps an error of a plugin to itself; mutants that nobody judged are not dead.
        raise SystemExit(f"{name}: {judge.mistake or f'{judge.judged} of {len(drawn)} mutants were judged'}")
    for mutant in sorted(judge.alive, key=lambda mutant: mutant[:2]):
        print(f"  lives  {mutant.file}:{mutant.line}  {mutant.before}  ->  {mutant.after}")
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
    parser = argparse.ArgumentParser("python -m bench.mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--sample", type=int, default=36)
    parser.add_argument("--all", action="store_true", help="every mutant instead of a sample")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    namespace = parser.parse_args()
    os.chdir(ROOT)
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    sample = None if namespace.all else namespace.sample
    remaining = True
    for name in namespace.targets or TARGETS:
        # A process each: pytest imports the tests once.
        fork_process = multiprocessing.get_context("fork").Process(
            target=judge_target, args=(name, sample, namespace.seed, namespace.workers)
        )
        fork_process.start()
        fork_process.join()
        remaining = remaining and fork_process.exitcode == 0
    sys.exit(0 if remaining else 1)


if __name__ == "__main__":
    main()
