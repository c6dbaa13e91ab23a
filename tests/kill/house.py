"""Where sessions of the matrix live: what stores their trail and graph, and what launches their jobs.

Another house is another value: its spec says which launcher it takes, its variables which database, and its two
functions read the trail back. A house that cannot be had on a machine says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reviews.audit import Audit, verify_run
from reviews.store import Store
from reviews.trail import Recorded, read_entries


def _entries(run: Path) -> list[Recorded]:
    return read_entries(run / "trail.sqlite")


def _audit(run: Path) -> Audit:
    return verify_run(run, "trail.sqlite", "store")


def _store(run: Path) -> Store:
    return Store(run / "store")


def _nothing() -> str:
    return ""


@dataclass(frozen=True)
class House:
    """One combination of saver and launcher."""

    name: str
    changes: tuple[tuple[str, str], ...] = ()
    """Of the small spec: each replaces one text that stands in it exactly once."""
    silent: tuple[str, ...] = ()
    """Stages that are real ones, which leave no line in the file of effects."""
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    """Further variables of `peergate`."""
    missing: Callable[[], str] = _nothing
    """Says what is not there on this machine; empty when everything is."""
    entries: Callable[[Path], list[Recorded]] = _entries
    audit: Callable[[Path], Audit] = _audit
    store: Callable[[Path], Store] = _store


TRAINING = (
    ("learning_rate: 1e-5, epochs: 2", "learning_rate: 1e-3, checkpoint_steps: 3, epochs: 2"),
    ("learning_rate: {min: 1e-6, max: 1e-4}", "learning_rate: {min: 1e-6, max: 1e-2}"),
)
"""Changes of the spec for a site whose model can be trained: it learns enough to be seen, and saves steps."""
SQLITE_LOCAL = House("sqlite+local")
HOUSES = (SQLITE_LOCAL,)
