"""What formats are made from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store


class ExportSource(NamedTuple):
    """A session whose trail holds together."""

    run: Path
    entries: Sequence[RecordedEntry]
    store: Store
