"""Two workers share the tests: one runs everything with real weights, in order, the others file by file the rest."""

from __future__ import annotations

import pytest

from reviews.log import keys
from tests.fixtures.reviewer_here import key_here


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group the tests for ``--dist loadgroup``; the group that takes longest comes first."""
    for item in items:
        heavy = item.get_closest_marker("model") is not None or "e2e" in item.path.parts
        item.add_marker(pytest.mark.xdist_group("real weights" if heavy else str(item.path)))
    items.sort(key=lambda item: "e2e" not in item.path.parts)


@pytest.fixture(autouse=True)
def keys_are_made_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no process for every reviewer's key, except where the test is about that."""
    if request.node.get_closest_marker("apart") is None:
        monkeypatch.setattr(keys, "key_apart", key_here)
