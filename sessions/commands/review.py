"""`peergate review import`: reviews of older trails as records. Nothing is written."""

from __future__ import annotations

from pathlib import Path

from reviews.legacy.folder import read_folder
from sessions.commands.imported import Counter, print_trail
from sessions.commands.output import print_json


def import_folder(folder: Path, as_json: bool) -> None:
    """Print a record for every review file below a folder."""
    trail = read_folder(folder, Counter())
    if as_json:
        print_json(trail.as_json())
        return
    print_trail(trail)
