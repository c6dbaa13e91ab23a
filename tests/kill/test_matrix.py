"""The kill matrix: processes of a session are killed at drawn moments, and it goes on as if nothing had been.

A few runs are made in ``make test``, 40 in ``make test-all``, 500 with ``-m nightly``, shared by the houses.
``pytest tests/kill --kill-seed N`` makes one again, in every house; with ``-k postgres`` and the like in one of them.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.kill.conftest import Ground
from tests.kill.house import COMPARED_LOCAL, POSTGRES_LOCAL, SQLITE_LOCAL, SQLITE_RAY
from tests.kill.runs import Kill, describe, drawn, problems, run

SHARES = ((SQLITE_LOCAL, 2, 27, 240), (COMPARED_LOCAL, 1, 7, 60), (POSTGRES_LOCAL, 0, 13, 120), (SQLITE_RAY, 0, 0, 80))
"""By house: how many seeds are in ``make test``, in ``make test-all``, and with ``-m nightly``. On Ray all are nightly:
the process it starts for a job takes longer than the job."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of every seed in its house; no two houses share one."""
    if "seed" not in metafunc.fixturenames:
        return
    only = metafunc.config.getoption("--kill-seed", default=None)
    cases: list[Any] = []
    begin = 0
    for house, always, every, nightly in SHARES:
        for seed in range(begin, begin + nightly) if only is None else [only]:
            marks = [] if only is not None else _marks(seed - begin, always, every)
            cases.append(pytest.param(house, seed, marks=marks, id=f"{house.name}-{seed}"))
        begin += nightly
    metafunc.parametrize(("house", "seed"), cases)


def _marks(number: int, always: int, every: int) -> list[pytest.MarkDecorator]:
    """Return what keeps a run out of ``make test``, by its number in its house."""
    return [] if number < always else [pytest.mark.slow] if number < every else [pytest.mark.nightly]


@pytest.mark.parametrize(
    "house", [pytest.param(house, marks=_marks(0, *counts[:2]), id=house.name) for house, *counts in SHARES]
)
def test_what_is_aimed_at_is_hit(ground: Ground) -> None:
    """Otherwise a house in which nothing is found to be killed would pass."""
    aimed = [Kill("wrapper", 1, 0, 0), Kill("job", 2, 0, 0), Kill("reviewer", 3, 0, 0), Kill("orchestrator", 4, 0, 0)]
    ran = run(ground.site, ground.house, f"{ground.house.name}.aimed", aimed, ground.whole_s)
    assert ran.landed == ["wrapper", "job", "reviewer", "peergate"]
    assert problems(ground.house, ran, ground.undisturbed) == []
    ground.site.forget(ran.ground)


def test_whatever_is_killed_the_session_ends_as_if_nothing_had_been(ground: Ground, seed: int) -> None:
    kills = drawn(seed, ground.house.jobs)
    ran = None
    try:
        ran = run(ground.site, ground.house, f"{ground.house.name}.{seed}", kills, ground.whole_s)
        results = problems(ground.house, ran, ground.undisturbed)
    except AssertionError as error:
        results = [str(error)]
    assert not results, f"{describe(seed, kills, ran)}\n" + "\n".join(results)
    assert ran is not None
    print(describe(seed, kills, ran))
    ground.site.forget(ran.ground)
