"""Checks that other distributions bring, through the entry point group ``peergate.checks``.

Only names are read here, nothing is imported: the measuring code needs to know who is there without loading it.
Not covered: an edit of such a distribution's files that leaves its version as it was. The audit then derives
other results and says so; it does not know why.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points

GROUP = "peergate.checks"


def entry_points_of_checks() -> list[EntryPoint]:
    """Return the entry points of the group, in an order that does not depend on the file system."""
    return list(_looked_up(entry_points))


@cache
def _looked_up(look: Callable[..., EntryPoints]) -> tuple[EntryPoint, ...]:
    """Look once a process: it takes as long as half a gate, and what is loaded does not change any more."""
    return tuple(sorted(look(group=GROUP), key=lambda one: (identity(one), one.name, one.value)))


def identity(point: EntryPoint) -> str:
    """Return name and version of the distribution an entry point belongs to."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else "unknown distribution"


def installed_identities() -> dict[str, str]:
    """Return ``{"check <distribution and version>: <entry point>": <what it names>}`` for what is installed."""
    return {f"check {identity(one)}: {one.name}": one.value for one in entry_points_of_checks()}
