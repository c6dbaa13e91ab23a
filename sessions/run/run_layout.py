"""The layout of a run folder, and how commands find one. Imports little, so that commands start fast."""

from __future__ import annotations

import os
import re
from pathlib import Path

from specs.system.errors import BlockedError, UserError
from specs.system.regular_files import open_regular

TRAIL, STORE = "trail.sqlite", "store"
POINTER = "trail.postgres"
"""Replaces the trail of a session in Postgres (``reviews/trail/tables/pointer.py``)."""
FINAL, INTERIM = "report", "interim"
"""Folders in the run folder: the recorded report, and the report of a session that waits for money."""
REPORT_JSON, REPORT_MARKDOWN = f"{FINAL}/report.json", f"{FINAL}/report.md"
REQUESTS = "reviews"
"""The folder next to the run folders that holds requested reviews outside of sessions."""
REVIEWS = "reviews.sqlite"
"""The trail of a folder that holds only requested reviews (``reviews/requests/request_record.py``)."""


def is_run(run: Path) -> bool:
    """Return whether a folder holds a session's trail or a pointer to it; an unreadable folder counts as a session."""
    try:
        return (run / TRAIL).is_file() or (run / POINTER).is_file()
    except PermissionError:
        return True


def why_unreadable(run: Path) -> str:
    """Return why a run folder or its trail cannot be opened; empty if it can."""
    try:
        with os.scandir(run):
            pass
        for name in (TRAIL, POINTER):
            if (run / name).is_file():
                open_regular(run / name).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def run_folder(run: Path, runs: Path = Path("runs")) -> Path:
    """Return a run folder that is named by a path, or by its name under ``runs``, which goes first."""
    under = runs / run
    # Neither is a path that leads up or in circles: a name is one part, and no dots.
    if len(run.parts) != 1 or run.name in ("", ".."):
        return run
    return under if _has_trail(under) or not run.is_dir() else run


def session_name(text: str | None, default: str) -> str:
    """Return the name of a new session: the given one, or that of the spec.

    Raises:
        UserError: no run folder can have this name, or another folder of the workspace has it.
    """
    name = default if text is None else text
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name):
        raise UserError(f"invalid session name '{name}'", hint="at most 64 letters, digits, '_', '.' and '-'")
    if name.casefold() == REQUESTS:
        hint = "choose another name, with --name or in the spec"
        raise UserError(f"invalid session name '{name}': it is the folder of requested reviews", hint=hint)
    return name


def trail_name(run: Path) -> str:
    """Return the name of the trail in a folder: a session's, or that of requested reviews if it holds only those."""
    return TRAIL if is_run(run) or not (run / REVIEWS).exists() else REVIEWS


def _has_trail(run: Path) -> bool:
    return is_run(run) or (run / REVIEWS).exists()


def require_run(run: Path) -> Path:
    """Return a session's run folder.

    Raises:
        UserError: it holds no session; the message lists the sessions next to it.
        Blocked: it cannot be read.
    """
    if not is_run(run):
        there = sorted(path.name for path in run.parent.glob("*") if is_run(path)) if run.parent.is_dir() else []
        known = f"sessions in {run.parent}: {', '.join(there)}" if there else f"no session lies in {run.parent}"
        raise UserError(f"unknown session '{run.name}'", where=str(run), hint=f"{known}; --runs names the folder")
    if why := why_unreadable(run):
        raise BlockedError(f"the session cannot be read: {why}", where=str(run))
    return run
