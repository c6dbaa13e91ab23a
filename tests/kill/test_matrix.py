"""The kill matrix: processes of a session are killed at drawn moments, and it goes on as if nothing had been.

40 runs are made every time, 500 with ``-m nightly``. ``pytest tests/kill --kill-seed N`` makes one again.
"""

from __future__ import annotations

import pytest

from tests.kill.conftest import Ground
from tests.kill.runs import describe, drawn, problems, run

SEEDS = 40
NIGHTLY = 500


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of every seed."""
    if "seed" in metafunc.fixturenames:
        only = metafunc.config.getoption("--kill-seed", default=None)
        every = [pytest.param(seed, marks=[pytest.mark.nightly] if seed >= SEEDS else []) for seed in range(NIGHTLY)]
        metafunc.parametrize("seed", every if only is None else [only])


def test_whatever_is_killed_the_session_ends_as_if_nothing_had_been(ground: Ground, seed: int) -> None:
    kills = drawn(seed)
    ran = None
    try:
        ran = run(ground.site, ground.house, f"{ground.house.name}.{seed}", kills, ground.whole_s)
        found = problems(ground.house, ran, ground.undisturbed)
    except AssertionError as error:
        found = [str(error)]
    assert not found, f"{describe(seed, kills, ran)}\n" + "\n".join(found)
    assert ran is not None
    print(describe(seed, kills, ran))
    ground.site.forget(ran.ground)
