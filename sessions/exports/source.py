"""What formats are made from."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from reviews.history.history import History


class ExportSource(NamedTuple):
    """A session whose trail holds together."""

    run: Path
    history: History
