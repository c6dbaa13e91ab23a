"""How the tests are shared between workers, and what all of them run with."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from reviews.trail import keys
from tests.fixtures import postgres_server
from tests.fixtures.reviewer_here import key_here


class ByFile(LoadScopeScheduling):
    """Gives whole files to workers, and all of ``tests/e2e`` to one: its sessions are shared, and fill the cores."""

    def _split_scope(self, nodeid: str) -> str:
        return "e2e" if nodeid.startswith("tests/e2e/") else nodeid.partition("::")[0]


def pytest_addoption(parser: pytest.Parser) -> None:
    """How long the soak of tests/integration/test_soak.py takes."""
    parser.addoption("--soak-minutes", type=float, default=120.0, help="minutes of the nightly soak of short sessions")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """Schedule by file."""
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest comes first."""
    items.sort(key=lambda item: "e2e" not in item.path.parts)


@pytest.fixture(autouse=True)
def keys_are_made_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no process for every reviewer's key, except where the test is about that."""
    if request.node.get_closest_marker("apart") is None:
        monkeypatch.setattr(keys, "key_apart", key_here)


@pytest.fixture(scope="session")
def postgres() -> Iterator[postgres_server.Server]:
    """A running Postgres, started by the first test of a worker that needs one."""
    if postgres_server.programs() is None:
        pytest.skip(postgres_server.MISSING)
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("psycopg is not installed: pip install 'peergate[postgres]'")
    with postgres_server.running() as server:
        yield server


@pytest.fixture
def database(postgres: postgres_server.Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an empty database, in which new trails are begun."""
    address = postgres.new_database()
    monkeypatch.setenv("PEERGATE_DATABASE", address)
    return address
