"""What formats are made from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from reviews.trail.chain.envelope import Recorded
from reviews.trail.chain.store import Store


class Source(NamedTuple):
    """A session whose trail holds together."""

    run: Path
    entries: Sequence[Recorded]
    store: Store
