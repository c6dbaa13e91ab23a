from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.quick_session import drive, open_quick, quick_session


@pytest.fixture(scope="session")
def closed_quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a quick session that was accepted, alone in its workspace: only to be read or copied."""
    run = open_quick(tmp_path_factory.mktemp("closed"))
    drive(quick_session(run))
    return run
