"""Two workers share the tests: one runs everything with real weights, in order, the others file by file the rest."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group the tests for ``--dist loadgroup``; the group that takes longest comes first."""
    for item in items:
        heavy = item.get_closest_marker("model") is not None or "e2e" in item.path.parts
        item.add_marker(pytest.mark.xdist_group("real weights" if heavy else str(item.path)))
    items.sort(key=lambda item: "e2e" not in item.path.parts)
