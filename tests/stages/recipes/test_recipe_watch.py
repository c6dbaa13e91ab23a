"""How often a recipe's processes are looked at."""

from __future__ import annotations

import subprocess
import time

import pytest

from sessions.jobs.process_usage import ProcessTree, ProcessUsage
from sessions.jobs.sandbox import recipe_job
from specs.stages.recipes.parameters import RecipeParameters


def test_a_look_that_took_long_leaves_no_time_to_hold_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script can make a look long, and hold what it wants while no one looks."""
    ends: list[float] = []
    rests: list[float] = []

    def usage(*_: object) -> ProcessUsage:
        rests.extend(time.monotonic() - number for number in ends)
        end = time.thread_time() + 0.4
        while time.thread_time() < end:
            pass
        ends.append(time.monotonic())
        return ProcessUsage(0, 1) if len(ends) == 1 else ProcessUsage(1 << 50, 1)

    monkeypatch.setattr(ProcessTree, "usage", usage)
    monkeypatch.setattr(recipe_job, "HURRY", 0)
    with subprocess.Popen(["sleep", "60"]) as process:
        _, _, broken = recipe_job._watch(process, RecipeParameters())  # pyright: ignore[reportPrivateUsage]
    assert "of memory" in broken and rests[0] < 2.0, "a rest of 3.6 s is a tenth of a processor"
