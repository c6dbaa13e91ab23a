from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sessions.session import Session
from testing.factories.benches import copy_of, new_session, open_stage


@pytest.fixture(scope="session")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a registered session, to be copied; a file whose session differs registers its own."""
    session = new_session(tmp_path_factory.mktemp("registered"))
    session.trail.close()
    return session.run


@pytest.fixture
def session(registered: Path, tmp_path: Path) -> Iterator[Session]:
    """A copy of it whose stage `sample` is open."""
    made = copy_of(registered, tmp_path)
    open_stage(made)
    yield made
    made.trail.close()
