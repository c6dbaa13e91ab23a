"""Where this copy of Peergate lies. Only this module, which never moves, counts folders upwards."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
"""The folder that holds the packages: a checkout, or ``site-packages``."""
PACKAGES = ("agents", "reviews", "sessions", "specs", "training")
SHARED_FILES = ("constitution.yaml",)
"""Files next to the packages that shipped specs name: every wheel holds them."""


def from_elsewhere(packages: tuple[str, ...]) -> Iterator[tuple[str, Path | None]]:
    """Yield the packages, and the loaded modules of them, that this process takes from elsewhere, with their folder.

    A digest of the files in :data:`HOME` says nothing of them. A package that is not found has no folder.
    """
    for name in packages:
        spec = find_spec(name)
        where = Path(spec.origin).resolve().parent.parent if spec and spec.origin else None
        if where != HOME:
            yield name, where
    for name, module in list(sys.modules.items()):
        package, dot, _ = name.partition(".")
        if not dot or package not in packages:
            continue
        file = getattr(module, "__file__", None)
        # Compared as text: a `Path` for each of a thousand modules takes tens of milliseconds.
        if file and not str(file).startswith(f"{HOME}/"):
            where = Path(file).resolve().parent
            if not where.is_relative_to(HOME):
                yield name, where
