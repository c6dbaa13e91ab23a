"""The trail of a reading command: in a run folder, a folder of requested reviews, or an export; and its entries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from reviews.trail.envelope import Recorded
from reviews.trail.store import Store
from reviews.trail.tables.open_table import read_entries
from reviews.trail.tables.pointer import is_trail
from reviews.trail.tables.query import Found, Wanted, select
from reviews.trail.tiles import is_export
from sessions.run.run_layout import STORE, run_folder, trail_name
from specs.errors import UserError


class Place(NamedTuple):
    """A trail and its evidence."""

    folder: Path
    trail: Path
    """The path that names the trail; of an export the folder itself."""

    @property
    def is_export(self) -> bool:
        """Whether this is an export, which holds no jobs and no files beside the store."""
        return self.trail == self.folder

    @property
    def store(self) -> Store:
        """The content store that lies with the trail."""
        return Store(self.folder / STORE)

    def entries(self) -> list[Recorded]:
        """Return every entry for display.

        Raises:
            AuditDamage: the trail or an entry cannot be read.
        """
        return self.find(Wanted()).entries if self.is_export else read_entries(self.trail)

    def find(self, wanted: Wanted, limit: int | None = None) -> Found:
        """Return the newest entries that fit; errors as in :meth:`entries`."""
        return select(self.trail, wanted, limit)


def place_of(given: Path) -> Place:
    """Return the place a person means: a folder, or the name of one under ./runs.

    Raises:
        UserError: there is no trail.
    """
    if is_export(given):
        return Place(given, given)
    run = run_folder(given)
    trail = run / trail_name(run)
    if not is_trail(trail):
        hint = "name a run folder, its name under ./runs, a folder of requested reviews, or an export"
        raise UserError("there is no trail", where=str(given), hint=hint)
    return Place(run, trail)


def entry_named(entries: Sequence[Recorded], wanted: str) -> Recorded:
    """Return the entry with a number or key.

    Raises:
        UserError: the trail has no such entry.
    """
    found = next((one for one in entries if wanted in (str(one.entry.seq), one.entry.key)), None)
    if found is None:
        raise UserError(
            f"no entry '{wanted}'", hint="`peergate audit list` shows numbers; keys look like decision/sft.1"
        )
    return found


_WAY = ("plan", "grant", "launch", "exit", "metrics", "checks", "packet", "verdict", "decision")


def way_of(found: Recorded, entries: Sequence[Recorded]) -> list[dict[str, Any]]:
    """Return the way an attempt took, from plan and grant over raw rows to the decision, with every digest on it."""
    stage, attempt = found.body.get("stage"), found.body.get("attempt")
    if attempt is None:
        return []
    at = f"{stage or 'design'}.{attempt}"
    way: list[dict[str, Any]] = []
    for one in entries:
        kind, key = one.entry.kind, one.entry.key
        # Grants and jobs are named SESSION.STAGE.ATTEMPT, everything else STAGE.ATTEMPT.
        if kind in _WAY and (key.partition("/")[2] == at or key.endswith(f".{at}")):
            names = {name: value for name, value in one.body.items() if str(value).startswith("sha256:")}
            names |= {name: made["digest"] for name, made in one.body.get("outputs", {}).items()}
            way.append({"entry": one.entry.seq, "kind": kind, "key": key, "digest": one.digest, "names": names})
    return way
