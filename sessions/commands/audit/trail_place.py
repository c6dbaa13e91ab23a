"""Where the trail of a reading command lies: in a run folder, a folder of requested reviews, or an export."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

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
