"""The option that repeats one run, and the ground that all runs of a module stand on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.kill.house import HOUSES, House
from tests.kill.runs import Result, result_of, run
from tests.kill.site import Site


class Ground(NamedTuple):
    """A site, a house on it, and what an undisturbed run there comes to."""

    site: Site
    house: House
    whole_s: float
    undisturbed: Result


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--kill-seed``."""
    parser.addoption("--kill-seed", type=int, default=None, help="run the kill matrix with this seed only")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A zygote for all runs."""
    site = Site(tmp_path_factory.mktemp("kill"))
    yield site
    site.close()


@pytest.fixture(scope="session", params=HOUSES, ids=lambda house: house.name)
def ground(request: pytest.FixtureRequest, site: Site) -> Ground:
    """A house with the result of a run that nobody disturbed."""
    house: House = request.param
    if missing := house.missing():
        pytest.skip(missing)
    # The first pays for what is loaded late.
    run(site, house, f"first.{house.name}", [], 1.0)
    ran = run(site, house, f"whole.{house.name}", [], 1.0)
    assert (ran.commands, ran.answers) == (1, 0)
    return Ground(site, house, ran.seconds, result_of(house, ran.run))
