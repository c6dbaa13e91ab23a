"""`peergate audit list | search`, and how entries are shown. Imports little: these start quickly."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from reviews.trail.envelope import Recorded
from reviews.trail.tables.query import Wanted
from sessions.commands.audit.trail_place import Place, place_of
from sessions.commands.output import print_json, print_line, print_table
from sessions.terminal import masked_line
from specs.errors import UserError

_SHOWN = (
    *("stage", "attempt", "key", "mode", "topic", "number", "outcome", "decision", "what", "usd"),
    *("answer", "reason", "cause", "error"),
)

_BY_PEOPLE = ("human", "override", "amendment", "retraction")


class Filters(NamedTuple):
    """Which entries a person wants to see."""

    kinds: list[str] | None = None
    stage: str | None = None
    attempt: int | None = None
    decision: str | None = None
    reviewer: str | None = None
    overrides: bool = False
    open_conditions: bool = False
    min_usd: float | None = None
    limit: int = 1000


def list_entries(run: Path, filters: Filters, text: str | None, as_json: bool) -> None:
    """List entries, filtered."""
    place = place_of(run)
    wanted = Wanted(
        kinds=_BY_PEOPLE if filters.overrides else tuple(filters.kinds or ()),
        stage=filters.stage,
        attempt=filters.attempt,
        outcome=filters.decision,
        reviewer=filters.reviewer,
        min_usd=filters.min_usd,
        text=text,
        seqs=_with_open_conditions(place) if filters.open_conditions else None,
    )
    found = place.find(wanted, filters.limit or None)
    if filters.kinds and not found.total:
        kinds = sorted({one.entry.kind for one in place.entries()})
        missing = [kind for kind in filters.kinds if kind not in kinds]
        if missing:
            raise UserError(f"no entry of kind '{missing[0]}'", hint=f"kinds in this trail: {', '.join(kinds)}")
    if as_json:
        print_json({"count": found.total, "entries": [as_data(one) for one in found.entries]})
        return
    rows = [(str(one.entry.seq), when(one), one.entry.kind, _gist(one)) for one in found.entries]
    print_table(("entry", "time", "kind", "what"), rows)
    if found.total > len(rows):
        print_line(f"{found.total - len(rows)} earlier entries are left out; --limit 0 shows all", err=True)


def _with_open_conditions(place: Place) -> tuple[int, ...]:
    """Return the numbers of the decisions that carry a condition which is still open."""
    # Conditions take the whole of a gate's code, which is slow to import.
    from reviews.gate.conditions import obligations

    found = obligations(place.entries(), time.time_ns())
    return tuple(sorted({one.made for one in found if one.state == "open"}))


def as_data(recorded: Recorded) -> dict[str, Any]:
    """Return an entry as `--json` gives it."""
    return recorded.entry.model_dump(mode="json") | {"digest": recorded.digest}


def when(recorded: Recorded) -> str:
    """Return the time of an entry."""
    return datetime.fromtimestamp(int(recorded.entry.time_ns) / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _gist(recorded: Recorded) -> str:
    shown = [f"{name}={_short(recorded.body[name])}" for name in _SHOWN if recorded.body.get(name) not in (None, "")]
    return masked_line(" ".join(shown), 100) or recorded.entry.key


def _short(value: Any) -> str:
    """Return a value for a table: of a digest its beginning, which is enough to find it."""
    text = str(value)
    return f"{text[:19]}..." if text.startswith("sha256:") else text
