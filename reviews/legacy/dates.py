"""When a review was made: the stamp in its name, the commit that brought it, and what it says itself, kept apart.

A date that a reviewer wrote is never taken over. The stamp of the name is, unless the file was committed before it:
a file cannot be younger than the commit that holds it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from reviews.legacy.history import Commit

STAMP = re.compile(
    r"(?<!\d)(?P<y>(?:19|20)\d\d)[-_.]?(?P<m>\d\d)[-_.]?(?P<d>\d\d)"
    r"(?:[-_T. ]{0,2}(?P<H>[0-2]\d)[-_:.h]?(?P<M>[0-5]\d)(?:[-_:.m]?(?P<S>[0-5]\d))?)?Z?(?!\d)"
)
_STATED = re.compile(
    r"(?i)^\W*(?:(?:review(?:ed)?|response|session|completed|created|reply)\s*)?(?:date|on|at|timestamp|time|reviewed)\b\W{0,6}(?P<rest>.{4,60})$"
)
_ISO = re.compile(r"(?<!\d)((?:19|20)\d\d)[-/.](\d{1,2})[-/.](\d{1,2})(?!\d)")
_NAMED = (
    re.compile(r"(?i)\b(?P<month>[a-z]{3,9})\.?\s+(?P<day>\d{1,2})(?:st|nd|rd|th)?,?\s+(?P<year>(?:19|20)\d\d)\b"),
    re.compile(r"(?i)\b(?P<day>\d{1,2})(?:st|nd|rd|th)?\.?\s+(?P<month>[a-z]{3,9})\.?,?\s+(?P<year>(?:19|20)\d\d)\b"),
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_HEAD = 60
"""Lines at the start and the end of a review in which its own date is looked for."""
SLACK = timedelta(hours=36)
"""Two times further apart than this contradict each other: names carry no time zone, and dates no hour."""
LATE = timedelta(days=30)


class Stamp(NamedTuple):
    """A time as far as it is known; ``whole`` is false when only the day is known."""

    moment: datetime
    whole: bool

    def told(self) -> str:
        """Return it in the form of ISO 8601; a name's time has no zone."""
        return self.moment.replace(tzinfo=None).isoformat() if self.whole else self.moment.date().isoformat()

    def apart(self, other: datetime) -> timedelta:
        """Return the shortest time between this and another moment; a day lasts until its end."""
        within = not self.whole and self.moment <= other < self.moment + timedelta(days=1)
        return timedelta(0) if within else abs(self.moment - other)


class Times(NamedTuple):
    """When a review was made, by source (``name`` or ``commit``), and where the sources contradict each other."""

    taken: str | None
    source: str | None
    name: Stamp | None
    commit: Commit | None
    stated: tuple[tuple[int, str], ...]
    conflicts: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the times as a JSON value."""
        return {
            "value": self.taken,
            "from": self.source,
            "name": self.name.told() if self.name else None,
            "commit": self.commit.as_json() if self.commit else None,
            "stated": [{"line": line, "date": told} for line, told in self.stated],
            "conflicts": list(self.conflicts),
        }


def stamp_of(name: str) -> Stamp | None:
    """Return the time in a file's name: ``20250101_121314_topic.txt``, ``2025-01-01-topic.md``."""
    for hit in STAMP.finditer(PurePosixPath(name).name):
        day = _day(hit["y"], hit["m"], hit["d"])
        if day and hit["H"] is not None and int(hit["H"]) < 24:
            return Stamp(day.replace(hour=int(hit["H"]), minute=int(hit["M"]), second=int(hit["S"] or 0)), True)
        if day:
            return Stamp(day, False)
    return None


def stated_dates(lines: Sequence[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
    """Return the dates that a review gives itself, with their lines."""
    found: list[tuple[int, str]] = []
    for number, line in [*lines[:_HEAD], *lines[max(_HEAD, len(lines) - _HEAD) :]]:
        hit = _STATED.match(re.sub(r"[*_|#>]", "", line[:200]))
        if hit and (day := _date_in(hit["rest"])):
            found.append((number, day.date().isoformat()))
    return tuple(found)


def times_of(name: str, commit: Commit | None, stated: tuple[tuple[int, str], ...]) -> Times:
    """Return when a review was made.

    Args:
        name: the file's name.
        commit: the commit that brought the file, if that is known.
        stated: the dates it gives itself.
    """
    stamp = stamp_of(name)
    conflicts: list[str] = []
    committed = commit.moment.isoformat() if commit else None
    taken, source = (stamp.told(), "name") if stamp else (committed, "commit" if commit else None)
    if commit and stamp and stamp.moment - commit.moment > SLACK:
        conflicts.append(f"its name says {stamp.told()}, but it was committed before that, on {commit.moment.date()}")
        taken, source = committed, "commit"
    elif commit and stamp and commit.moment - stamp.moment > LATE:
        conflicts.append(f"its name says {stamp.told()}, but it was committed much later, on {commit.moment.date()}")
    reference = commit.moment if source == "commit" and commit else stamp.moment if stamp else None
    for line, day in stated:
        said = Stamp(datetime.fromisoformat(day).replace(tzinfo=UTC), False)
        if reference is not None and said.apart(reference) > SLACK:
            conflicts.append(f"line {line} dates it {day}, but its {source} says {(taken or '')[:10]}")
    return Times(taken, source, stamp, commit, stated, tuple(conflicts))


def _day(year: str, month: str, day: str) -> datetime | None:
    try:
        return datetime(int(year), int(month), int(day), tzinfo=UTC)
    except ValueError:
        return None


def _date_in(text: str) -> datetime | None:
    if hit := _ISO.search(text) or STAMP.search(text):
        return _day(hit[1], hit[2], hit[3])
    for pattern in _NAMED:
        if (hit := pattern.search(text)) and (month := hit["month"][:3].lower()) in _MONTHS:
            return _day(hit["year"], str(_MONTHS.index(month) + 1), hit["day"])
    return None
