from __future__ import annotations

from pathlib import Path

import pytest

from testing.fixtures.hostile_trail import plant, small_trail
from tests.sessions.report.test_trail_page import HOSTILE


@pytest.fixture(scope="session")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a quick session that waits for a person, alone in its workspace: only to be read or copied."""
    return small_trail(tmp_path_factory.mktemp("waiting"))


@pytest.fixture(scope="session")
def hostile(waiting: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with hostile text in the place of every text that others wrote."""
    return plant(waiting, tmp_path_factory.mktemp("planted"), HOSTILE)
