"""When a review was made: the stamp in its name, the commit that brought it, and the date it states, kept apart.

A date that a reviewer wrote is only compared. The stamp of the name counts, unless the file was committed before it.
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
_MONTH, _DAY, _YEAR = r"(?P<m>[a-z]{3,9})\.?", r"(?P<d>\d{1,2})(?:st|nd|rd|th)?", r"(?P<y>(?:19|20)\d\d)\b"
_DATES = (
    re.compile(r"(?<!\d)(?P<y>(?:19|20)\d\d)[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})(?!\d)"),
    STAMP,
    re.compile(rf"(?i)\b{_MONTH}\s+{_DAY},?\s+{_YEAR}"),
    re.compile(rf"(?i)\b{_DAY}\.?\s+{_MONTH},?\s+{_YEAR}"),
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_HEAD = 60
"""A review's own date is looked for in so many lines at its start and its end."""
SLACK = timedelta(hours=36)
"""Two times further apart than this contradict each other: names carry no time zone, and dates no hour."""
LATE = timedelta(days=30)


class Stamp(NamedTuple):
    """A time as far as it is known; ``whole`` is false when only the day is known."""

    moment: datetime
    whole: bool

    def __str__(self) -> str:
        """Return it in the form of ISO 8601; a name's time has no zone."""
        return self.moment.replace(tzinfo=None).isoformat() if self.whole else self.moment.date().isoformat()

    def apart(self, other: datetime) -> timedelta:
        """Return the shortest time between this and another moment; a day lasts until its end."""
        within = not self.whole and self.moment <= other < self.moment + timedelta(days=1)
        return timedelta(0) if within else abs(self.moment - other)


class Times(NamedTuple):
    """When a review was made, by source (``name`` or ``commit``), and where the sources contradict each other."""

    taken: str | None = None
    source: str | None = None
    name: Stamp | None = None
    commit: Commit | None = None
    stated: tuple[tuple[int, str], ...] = ()
    conflicts: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the times as a JSON value."""
        return {
            "value": self.taken,
            "from": self.source,
            "name": str(self.name) if self.name else None,
            "commit": {"id": self.commit.id, "time": self.commit.moment.isoformat()} if self.commit else None,
            "stated": [{"line": line, "date": day} for line, day in self.stated],
            "conflicts": list(self.conflicts),
        }


def stamp_of(name: str) -> Stamp | None:
    """Return the time in a file's name: ``20250101_121314_topic.txt``, ``2025-01-01-topic.md``."""
    for hit in STAMP.finditer(PurePosixPath(name).name):
        if day := _day(hit):
            if hit["H"] is None or int(hit["H"]) > 23:
                return Stamp(day, False)
            return Stamp(day.replace(hour=int(hit["H"]), minute=int(hit["M"]), second=int(hit["S"] or 0)), True)
    return None


def stated_dates(lines: Sequence[str]) -> tuple[tuple[int, str], ...]:
    """Return the dates that a review gives itself, with their line numbers."""
    numbered = list(enumerate(lines, 1))
    found: list[tuple[int, str]] = []
    for number, line in [*numbered[:_HEAD], *numbered[max(_HEAD, len(lines) - _HEAD) :]]:
        stated = _STATED.match(re.sub(r"[*_|#>]", "", line[:200]))
        hits = [form.search(stated["rest"]) for form in _DATES] if stated else []
        if day := next((day for hit in hits if hit and (day := _day(hit))), None):
            found.append((number, day.date().isoformat()))
    return tuple(found)


def times_of(name: str, commit: Commit | None, stated: tuple[tuple[int, str], ...]) -> Times:
    """Return when a review was made, by its name, the commit that brought it, and the dates it states."""
    stamp, conflicts = stamp_of(name), list[str]()
    reference, taken, source = (stamp.moment, str(stamp), "name") if stamp else (None, None, None)
    if commit and stamp and commit.moment - stamp.moment > LATE:
        conflicts.append(f"its name says {stamp}, but it was committed much later, on {commit.moment.date()}")
    if commit and (stamp is None or stamp.moment - commit.moment > SLACK):
        if stamp:
            conflicts.append(f"its name says {stamp}, but it was committed before that, on {commit.moment.date()}")
        reference, taken, source = commit.moment, commit.moment.isoformat(), "commit"
    for line, day in stated:
        said = Stamp(datetime.fromisoformat(day).replace(tzinfo=UTC), False)
        if reference is not None and said.apart(reference) > SLACK:
            conflicts.append(f"line {line} dates it {day}, but its {source} says {(taken or '')[:10]}")
    return Times(taken, source, stamp, commit, stated, tuple(conflicts))


def _day(hit: re.Match[str]) -> datetime | None:
    month = hit["m"][:3].lower()
    try:
        number = int(month) if month.isdigit() else _MONTHS.index(month) + 1
        return datetime(int(hit["y"]), number, int(hit["d"]), tzinfo=UTC)
    except ValueError:
        return None
