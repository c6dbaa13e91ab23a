"""Lines of numbers as shapes of a picture: the browser draws them, nothing is computed there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

WIDTH, HEIGHT = 600, 180
LEFT, BOTTOM, TOP = 56, 22, 10
MOST_POINTS = 600
"""Of a longer line every so many-th number is drawn, and the last."""


def curve(values: Sequence[float], name: str) -> dict[str, Any] | None:
    """Return a line through values by their number, with its axes; None with fewer than two finite values."""
    points = [(place, value) for place, value in enumerate(values, 1) if math.isfinite(value)]
    if len(points) < 2:
        return None
    low, high = min(value for _, value in points), max(value for _, value in points)
    step = -(-len(points) // MOST_POINTS)
    kept = points[::step] if points[-1] in points[::step] else [*points[::step], points[-1]]
    first, last = points[0][0], points[-1][0]
    span = (high - low) or 1.0

    def at(point: tuple[int, float]) -> str:
        x = LEFT + (WIDTH - LEFT - 8) * (point[0] - first) / (last - first)
        y = TOP + (HEIGHT - TOP - BOTTOM) * (high - point[1]) / span
        return f"{x:.1f},{y:.1f}"

    return {
        "name": name,
        "points": " ".join(map(at, kept)),
        "low": f"{low:.4g}",
        "high": f"{high:.4g}",
        "first": first,
        "last": last,
        "count": len(points),
        "begin": f"{points[0][1]:.4g}",
        "end": f"{points[-1][1]:.4g}",
    }
