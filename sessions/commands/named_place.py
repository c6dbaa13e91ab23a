"""Finds the trail that a command names: a session, a run folder, a folder of requested reviews, or an export."""

from __future__ import annotations

from pathlib import Path

from reviews.trail.chain.tiles import is_export
from reviews.trail.tables.pointer import is_trail
from sessions.commands.options import DEFAULT_RUNS, chosen
from sessions.pages.trail_place import TrailPlace
from sessions.run.run_layout import TRAIL, require_run, trail_name
from specs.system.errors import UserError


def session_at(path: Path | None, runs: Path = DEFAULT_RUNS) -> TrailPlace:
    """Return the run folder of a session that a person means: by path, by its name in ``runs``, or the newest there.

    Raises:
        UserError: no such session.
        Blocked: it cannot be read.
    """
    run = require_run(chosen(path, runs))
    return TrailPlace(run, run / TRAIL)


def place_of(path: Path | None, runs: Path = DEFAULT_RUNS) -> TrailPlace:
    """Return the place a person means: by path, by a name in ``runs``, or the newest session; UserError without it."""
    run = folder_of(path, runs)
    if is_export(run):
        return TrailPlace(run, run)
    trail = run / trail_name(run)
    if not is_trail(trail):
        hint = "name a session, a run folder, a folder of requested reviews, or an export; --runs names their folder"
        raise UserError("no trail", where=str(run), hint=hint)
    return TrailPlace(run, trail)


def folder_of(path: Path | None, runs: Path) -> Path:
    """Return the folder a person means, an export's too; nothing says that it has a trail."""
    return path if path is not None and is_export(path) else chosen(path, runs)
