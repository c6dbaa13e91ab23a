"""Where things lie in a run folder, and which one a person means. Imports little, so that commands start quickly."""

from __future__ import annotations

from pathlib import Path

TRAIL = "trail.sqlite"
REVIEWS = "reviews.sqlite"
"""The trail of a folder that holds nothing but requested reviews (``reviews/requests/record.py``)."""
STORE = "store"


def run_folder(run: Path) -> Path:
    """Return the run folder a person means: the folder itself, or the name of one under ./runs."""
    under = Path("runs") / run
    if not (run / trail_name(run)).exists() and len(run.parts) == 1 and (under / trail_name(under)).exists():
        return under
    return run


def trail_name(run: Path) -> str:
    """Return the name of the trail in a folder: a session's, or that of requested reviews where only those are."""
    return TRAIL if (run / TRAIL).exists() or not (run / REVIEWS).exists() else REVIEWS
