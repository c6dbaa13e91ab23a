"""The option that repeats one run, and the ground that all runs of a module stand on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kill.house import House
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


@pytest.fixture(scope="session")
def grounds(site: Site) -> Iterator[Callable[[House], Ground]]:
    """Opens houses, each when it is first asked for; they are held until all tests are done."""
    with ExitStack() as stack:

        @cache
        def ground_of(described: House) -> Ground:
            return stack.enter_context(opened(site, described))

        yield ground_of


@pytest.fixture
def ground(house: House, grounds: Callable[[House], Ground]) -> Ground:
    """The house that a test is given, with the result of a run that no one disturbed."""
    if missing := house.missing():
        pytest.skip(missing)
    return grounds(house)


@contextmanager
def opened(site: Site, described: House) -> Generator[Ground]:
    """Open a house, and run a session in it that no one disturbs."""
    folder = Path(tempfile.mkdtemp(prefix=f"house.{described.name}.", dir=site.folder))
    with described.opened(described, folder) as house:
        # The first pays for what is loaded late.
        site.forget(run(site, house, f"first.{house.name}", [], 1.0).ground)
        ran = run(site, house, f"whole.{house.name}", [], 1.0)
        assert (ran.commands, ran.answers) == (1, 0)
        result = result_of(house, ran.run)
        site.forget(ran.ground)
        yield Ground(site, house, ran.seconds, result)
