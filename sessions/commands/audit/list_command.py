"""`peergate audit list | search`, and how entries are shown. Imports little: these start quickly."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from reviews.trail.envelope import Recorded
from reviews.trail.tables.query import Wanted
from sessions.commands.audit.trail_place import Place, place_of
from sessions.commands.options import Json, TrailPath
from sessions.commands.output import print_json, print_line, print_table
from sessions.terminal import masked_line
from specs.errors import UserError

_SHOWN = (
    *("stage", "attempt", "key", "mode", "topic", "number", "outcome", "decision", "what", "usd"),
    *("answer", "reason", "cause", "error"),
)

_BY_PEOPLE = ("human", "override", "amendment", "retraction")


app = typer.Typer()

Kind = Annotated[list[str] | None, typer.Option("--kind", help="Only entries of this kind; can be repeated.")]
Stage = Annotated[str | None, typer.Option("--stage", help="Only entries of this stage.")]
Attempt = Annotated[int | None, typer.Option("--attempt", help="Only entries of this attempt.", min=0)]
Decision = Annotated[str | None, typer.Option("--decision", help="Only decisions with this outcome.")]
ByReviewer = Annotated[str | None, typer.Option("--reviewer", help="Only what this reviewer judged.")]
Overrides = Annotated[bool, typer.Option("--overrides", help="Only what people lifted, amended or took back.")]
OpenConditions = Annotated[
    bool, typer.Option("--open-conditions", help="Only decisions with a condition that is still open.")
]
MinCost = Annotated[float | None, typer.Option("--min-cost", help="Only entries about at least this many USD.", min=0)]
Limit = Annotated[int, typer.Option("--limit", help="At most this many, the newest; 0 for all.", min=0)]


@app.command("list")
def list_entries(
    run: TrailPath,
    kind: Kind = None,
    stage: Stage = None,
    attempt: Attempt = None,
    decision: Decision = None,
    reviewer: ByReviewer = None,
    overrides: Overrides = False,
    open_conditions: OpenConditions = False,
    min_cost: MinCost = None,
    limit: Limit = 1000,
    as_json: Json = False,
) -> None:
    """List the entries of a trail, oldest first."""
    search(run, "", kind, stage, attempt, decision, reviewer, overrides, open_conditions, min_cost, limit, as_json)


@app.command("search")
def search(
    run: TrailPath,
    text: Annotated[str, typer.Argument(help="Text in the entry; letter case does not matter.")],
    kind: Kind = None,
    stage: Stage = None,
    attempt: Attempt = None,
    decision: Decision = None,
    reviewer: ByReviewer = None,
    overrides: Overrides = False,
    open_conditions: OpenConditions = False,
    min_cost: MinCost = None,
    limit: Limit = 1000,
    as_json: Json = False,
) -> None:
    """List the entries that hold a text; the filters are those of list."""
    place = place_of(run)
    wanted = Wanted(
        kinds=_BY_PEOPLE if overrides else tuple(kind or ()),
        stage=stage,
        attempt=attempt,
        outcome=decision,
        reviewer=reviewer,
        min_usd=min_cost,
        text=text or None,
        seqs=_with_open_conditions(place) if open_conditions else None,
    )
    found = place.find(wanted, limit or None)
    if kind and not found.total:
        kinds = sorted({one.entry.kind for one in place.entries()})
        missing = [one for one in kind if one not in kinds]
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
