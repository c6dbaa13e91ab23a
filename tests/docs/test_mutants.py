"""The bench of mutants: a mutant that nobody judged is not dead."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from specs.home import HOME

SCRIPT = """
from bench.mutants import __main__, judge

def cut_short(places):
    raise RuntimeError("as a warning of an import was")

if {broken}:
    judge._functions = cut_short
__main__.judge_target("losses", 2, 1, 1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("broken", [False, True])
def test_mutants_that_nobody_judged_are_not_dead(broken: bool) -> None:
    command = [sys.executable, "-c", SCRIPT.format(broken=broken)]
    # Not with the settings of the tests that run here: it runs tests of its own.
    plain = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(command, cwd=HOME, env=plain, capture_output=True, text=True, check=False, timeout=300)
    assert ("0 of 2 mutants were judged" in done.stderr) == broken, done
    assert ("of 2 mutants killed" in done.stdout) != broken and (done.returncode or not broken), done
