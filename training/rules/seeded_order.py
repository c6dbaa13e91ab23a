"""The order of examples that a seed gives."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def file_order(text: str, seed: int) -> str:
    """Return a sort key that shuffles texts the same way on every machine and Python version."""
    return hashlib.sha256(f"{seed}/{text}".encode()).hexdigest()


def draw_share(names: Iterable[str], share: float, seed: int) -> set[str]:
    """Return a share of different names, rounded: at least one if the share is above 0, and never all of them."""
    ordered = sorted(set(names), key=lambda name: file_order(name, seed))
    count = min(max(1, round(share * len(ordered))), len(ordered) - 1) if share > 0 and ordered else 0
    return set(ordered[:count])
