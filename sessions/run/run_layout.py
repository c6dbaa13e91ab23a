"""Where things lie in a run folder, and which one a person means. Imports little, so that commands start quickly."""

from __future__ import annotations

import os
from pathlib import Path

from specs.errors import Blocked, UserError

TRAIL = "trail.sqlite"

POINTER = "trail.postgres"
"""Of a session in Postgres instead (``reviews/trail/tables/pointer.py``)."""

REVIEWS = "reviews.sqlite"
"""The trail of a folder that holds nothing but requested reviews (``reviews/requests/request_record.py``)."""

STORE = "store"


def is_run(run: Path) -> bool:
    """Say whether a session lies in a folder: its trail, or what points to its trail in a database.

    A folder that cannot be opened may be one; reading it reports why.
    """
    try:
        return (run / TRAIL).is_file() or (run / POINTER).is_file()
    except PermissionError:
        return True


def why_unreadable(run: Path) -> str:
    """Say why a run folder or its trail cannot be opened; empty when it can."""
    try:
        with os.scandir(run):
            pass
        for name in (TRAIL, POINTER):
            if (run / name).is_file():
                (run / name).open("rb").close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def run_folder(run: Path) -> Path:
    """Return the run folder a person means: the folder itself, or the name of one under ./runs."""
    under = Path("runs") / run
    if not _has_trail(run) and len(run.parts) == 1 and _has_trail(under):
        return under
    return run


def trail_name(run: Path) -> str:
    """Return the name of the trail in a folder: a session's, or that of requested reviews where only those are."""
    return TRAIL if is_run(run) or not (run / REVIEWS).exists() else REVIEWS


def _has_trail(run: Path) -> bool:
    return is_run(run) or (run / REVIEWS).exists()


def require_run(run: Path) -> Path:
    """Return the run folder if a session lies in it.

    Raises:
        UserError: it does not; the message lists what is there.
        Blocked: it cannot be read.
    """
    if why := why_unreadable(run) if is_run(run) else "":
        raise Blocked(f"the session cannot be read: {why}", where=str(run))
    if not is_run(run):
        there = sorted(path.name for path in run.parent.glob("*") if is_run(path)) if run.parent.is_dir() else []
        known = f"sessions in {run.parent}: {', '.join(there)}" if there else f"no session lies in {run.parent}"
        raise UserError(f"there is no session '{run.name}'", where=str(run), hint=f"{known}; --runs names the folder")
    return run
