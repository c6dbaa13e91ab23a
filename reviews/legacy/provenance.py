"""What a file says about the call it comes from: model, effort, tokens, cost. What it does not say stays unknown.

These are the words of the file, not facts: nothing confirms them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from reviews.legacy.layout import Page

_HEAD = 40
_KEYS = (
    ("model", re.compile(r"(?i)^\W*(?:reviewer\s+)?model(?:\s+(?:id|name))?\W{1,6}(?P<value>[\w.:/-]{2,60})\W*$")),
    (
        "effort",
        re.compile(
            r"(?i)^\W*(?:model_)?(?:reasoning[\s_-]*)?effort\W{1,6}(?P<value>minimal|low|medium|high|xhigh|\d{1,6})\b"
        ),
    ),
    (
        "cost",
        re.compile(
            r"(?i)^\W*(?:total\s+|review\s+)?(?:cost|price)(?:[\s_]usd)?\W{1,6}(?P<value>(?:(?:usd|eur|\$"
            r"|\u20ac)\s*)?\d[\d.,]{0,11}(?:\s*(?:usd|eur|\$|\u20ac|cents?))?)\W*$"
        ),
    ),
    (
        "tokens",
        re.compile(
            r"(?i)^(?:\W*\[[^\]]{1,40}\])?\W*(?:total\s+)?tokens(?:\s+used)?\W{1,6}(?P<value>\d[\d,._]{0,11})\W*$"
        ),
    ),
)


class Provenance(NamedTuple):
    """What a file says about its own making; ``request`` tells where in the file the request stands."""

    model: str | None = None
    effort: str | None = None
    cost: str | None = None
    tokens: str | None = None
    request: str | None = None


def provenance_of(page: Page) -> Provenance:
    """Return what the first and last lines of a file say about the call it comes from."""
    found: dict[str, str] = {}
    lines = page.lines
    for at in [*range(min(len(lines), _HEAD)), *range(max(_HEAD, len(lines) - _HEAD), len(lines))]:
        for name, pattern in _KEYS:
            if name not in found and (hit := pattern.match(lines[at][:200])):
                found[name] = hit["value"]
    asked = [
        number
        for number, zone, line in zip(page.numbers, page.zones, page.lines, strict=True)
        if zone == "request" and line.strip()
    ]
    request = f"in the file, lines {asked[0]} to {asked[-1]}" if len(asked) >= 2 else None
    return Provenance(found.get("model"), found.get("effort"), found.get("cost"), found.get("tokens"), request)
