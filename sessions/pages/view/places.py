"""What the page shows: the sessions of a workspace, or one trail, each reread only after it has changed."""

from __future__ import annotations

import platform
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from reviews.history.history import History
from reviews.trail.anchors import Anchor
from reviews.trail.chain.store import Store
from reviews.trail.chain.tiles import CHECKPOINT
from reviews.trail.file_seal import seal_path
from reviews.trail.tables.pointer import pointer_of
from sessions.pages.overview import OPEN, Overview, make_damaged_overview, running, summary
from sessions.pages.report.session_list import everywhere, list_overviews
from sessions.pages.trail_place import TrailPlace
from sessions.run.heartbeat import mark_of
from sessions.run.lease import is_running
from sessions.run.run_layout import REVIEWS, is_run, trail_name
from specs.system.errors import PeergateError, UserError
from specs.trail.session_bodies import OpenEntry

CACHED_SESSIONS = 8
"""Trails that are kept in memory."""


class Read(NamedTuple):
    """A trail as it was read."""

    name: str
    place: TrailPlace
    history: History

    @property
    def store(self) -> Store:
        """The content store next to it."""
        return self.place.store

    @property
    def is_session(self) -> bool:
        """Return whether it is the trail of a session, and not of requested reviews."""
        return self.history.find(OpenEntry) is not None


@dataclass(frozen=True)
class Scope:
    """What may be looked at: every session of ``runs``, or the trail ``alone``."""

    runs: Path
    alone: TrailPlace | None = None
    everywhere: bool = False
    """Whether the list is of the workspace's whole database."""
    anchors: tuple[Anchor, ...] = ()
    """Signed heads that were kept elsewhere, of the trail that is looked at."""

    def list_sessions(self) -> list[Overview]:
        """Return the sessions in a few words, by name; of a whole database with the machines they are on."""
        if self.everywhere:
            return everywhere(self.runs)
        return list_overviews(self.runs) if self.alone is None else [state_of(self.alone)]

    def is_here(self, overview: Overview) -> bool:
        """Return whether a listed session has its run folder in this workspace, so that its pages can be shown."""
        return not self.everywhere or str(overview.path) == f"{platform.node()}:{self.runs.resolve() / overview.name}"

    def list_requested_reviews(self) -> list[str]:
        """Return the names of the folders of requested reviews in this workspace."""
        try:
            return [] if self.alone else sorted(path.parent.name for path in self.runs.glob(f"*/{REVIEWS}"))
        except OSError:
            return []

    def place(self, name: str) -> TrailPlace:
        """Return the place of a session; raises UserError if there is no such session here."""
        if self.alone is not None and name == self.alone.folder.name:
            return self.alone
        run = self.runs / name
        # One part of a path: nothing outside of the workspace is read.
        is_name = run.name == name and not name.startswith(".")
        if self.alone is None and is_name and (is_run(run) or (run / REVIEWS).is_file()):
            return TrailPlace(run, run / trail_name(run))
        raise UserError(f"unknown session '{name}'", where=str(self.runs))


def stamp_of(place: TrailPlace) -> str:
    """Return a text that changes when entries are added or sealed."""
    if place.is_export:
        return str(mark_of(place.folder / CHECKPOINT))
    if pointer_of(place.trail) is not None:
        return f"{len(place.history())} in a database"
    beside = (place.trail, place.trail.with_name(f"{place.trail.name}-wal"), seal_path(place.trail))
    return str([mark_of(path) for path in beside])


class TrailCache:
    """Reads trails, and keeps the last ones. For several threads."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._cache: OrderedDict[str, tuple[str, Read]] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, name: str) -> Read:
        """Return the trail of a session as it is now.

        Raises:
            UserError: there is no such session.
            AuditDamage: the trail cannot be read.
        """
        place = self.scope.place(name)
        stamp = stamp_of(place)
        with self._lock:
            known = self._cache.get(name)
        if known is not None and known[0] == stamp:
            return known[1]
        result = Read(name, place, place.history())
        with self._lock:
            self._cache[name] = stamp, result
            self._cache.move_to_end(name)
            while len(self._cache) > CACHED_SESSIONS:
                self._cache.popitem(last=False)
        return result


def state_of(place: TrailPlace, history: History | None = None) -> Overview:
    """Return the state of a trail; a trail that cannot be read is damaged, which is not an error."""
    name = place.folder.name
    try:
        read = place.history() if history is None else history
        overview = summary(name, place.folder, read, len(read))
        runs_now = not place.is_export and overview.state in OPEN and is_running(place.folder)
    except (PeergateError, OSError) as error:
        return make_damaged_overview(name, place.folder, error)
    return running(overview) if runs_now else overview
