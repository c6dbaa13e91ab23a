"""A session as a run in a folder of Trackio: `TRACKIO_DIR=FOLDER trackio show`."""

from __future__ import annotations

import os
from pathlib import Path

from sessions.exports.formats import Source
from sessions.exports.tracked_run import tracked


def write(source: Source, folder: Path) -> list[str]:
    """Write the run; Trackio reads where it keeps things when it is imported."""
    run = tracked(source)
    os.environ["TRACKIO_DIR"] = str(folder.resolve())

    return run.told()
