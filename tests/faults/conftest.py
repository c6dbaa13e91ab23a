"""The houses of the fault tests (``testing/fixtures/fault_houses.py``)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from testing.fixtures import ray_cluster
from testing.fixtures.fault_houses import (
    FILES,
    POSTGRES,
    POSTGRES_WRAPPERS,
    RAY,
    FaultHouse,
    copied_stage,
    make_templates,
)
from testing.fixtures.houses import House, kill


@pytest.fixture(scope="session")
def fault_templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What stages of a house with real jobs copy."""
    return make_templates(tmp_path_factory.mktemp("templates"))


@pytest.fixture(scope="session")
def fault_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A Ray cluster for all fault tests: its address and its token."""
    if missing := ray_cluster.missing():
        pytest.skip(missing)
    with ray_cluster.running(tmp_path_factory.mktemp("cluster")) as cluster:
        assert cluster.token is not None
        yield cluster.address, cluster.token


@pytest.fixture
def house(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultHouse]:
    """The house that ``in_houses`` names; what cannot be had on this machine skips the test with what is missing."""
    name: str = request.param
    if name in (POSTGRES, POSTGRES_WRAPPERS):
        request.getfixturevalue("database")
    if name in (FILES, POSTGRES):
        yield FaultHouse(name)
        return
    # Put back afterwards: the local launcher starts its wrappers with this interpreter.
    monkeypatch.setattr(sys, "executable", sys.executable)
    cluster = request.getfixturevalue("fault_cluster") if name == RAY else None
    (tmp_path / "jobs").mkdir()
    jobs = House("ray" if name == RAY else "local", tmp_path / "jobs", cluster, copied_stage())
    yield FaultHouse(name, jobs, request.getfixturevalue("fault_templates"))
    jobs.close()
    for beat in tmp_path.glob("**/jobs/*/heartbeat.json"):
        # Of a test that failed while a job ran.
        if not (beat.parent / "exit.json").exists():
            with suppress(OSError, ValueError):
                kill(json.loads(beat.read_bytes())["wrapper"])
