"""`peergate audit list | search`, and how entries are shown. Imports little: these start quickly."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.tables.query import TrailQuery
from sessions.commands.named_place import place_of
from sessions.commands.options import DEFAULT_RUNS, Json, RequiredTrailRun, Runs, TrailRun, spread
from sessions.commands.output import print_json, print_line, print_table
from sessions.pages.trail_place import TrailPlace
from sessions.run.terminal import masked_line
from specs.system.errors import UserError
from specs.system.text import plural

_LISTED = (
    *("stage", "attempt", "key", "mode", "topic", "number", "outcome", "decision", "what", "usd"),
    *("answer", "reason", "cause", "error"),
)

_BY_PEOPLE = ("human", "override", "amendment", "retraction")


app = typer.Typer()


@dataclass(frozen=True)
class Filters:
    """Which entries are listed, and how."""

    kind: Annotated[list[str] | None, typer.Option("--kind", help="Only entries of this kind; can be repeated.")] = None
    stage: Annotated[str | None, typer.Option("--stage", help="Only entries of this stage.")] = None
    attempt: Annotated[int | None, typer.Option("--attempt", help="Only entries of this attempt.", min=0)] = None
    decision: Annotated[str | None, typer.Option("--decision", help="Only decisions with this outcome.")] = None
    reviewer: Annotated[str | None, typer.Option("--reviewer", help="Only what this reviewer judged.")] = None
    overrides: Annotated[bool, typer.Option("--overrides", help="Only what people lifted, amended or took back.")] = (
        False
    )
    open_conditions: Annotated[
        bool, typer.Option("--open-conditions", help="Only decisions with a condition that is still open.")
    ] = False
    min_cost: Annotated[
        float | None, typer.Option("--min-cost", help="Only entries about at least this many USD.", min=0)
    ] = None
    runs: Runs = DEFAULT_RUNS
    limit: Annotated[int, typer.Option("--limit", help="At most this many, the newest; 0 for all.", min=0)] = 1000
    as_json: Json = False


@app.command("list")
@spread
def list_entries(run: TrailRun = None, *, filters: Filters) -> None:
    """List the entries of a trail, oldest first."""
    _list(run, "", filters)


@app.command("search")
@spread
def search(
    run: RequiredTrailRun,
    text: Annotated[str, typer.Argument(help="Text in the entry; letter case does not matter.")],
    filters: Filters,
) -> None:
    """List the entries that hold a text; the filters are those of list."""
    _list(run, text, filters)


def _list(run: Path | None, text: str, filters: Filters) -> None:
    place = place_of(run, filters.runs)
    wanted = TrailQuery(
        kinds=_BY_PEOPLE if filters.overrides else tuple(filters.kind or ()),
        stage=filters.stage,
        attempt=filters.attempt,
        outcome=filters.decision,
        reviewer=filters.reviewer,
        min_usd=filters.min_cost,
        text=text or None,
        seqs=_with_open_conditions(place) if filters.open_conditions else None,
    )
    result = place.find(wanted, filters.limit or None)
    if filters.kind and not result.total:
        kinds = sorted({entry.kind for entry in place.history()})
        missing = [text for text in filters.kind if text not in kinds]
        if missing:
            raise UserError(f"no entry of kind '{missing[0]}'", hint=f"kinds in this trail: {', '.join(kinds)}")
    if filters.as_json:
        print_json({"count": result.total, "entries": [as_data(entry) for entry in result.entries]})
        return
    rows = [(str(entry.seq), when(entry), entry.kind, _gist(entry)) for entry in result.entries]
    print_table(("entry", "time", "kind", "what"), rows)
    if result.total > len(rows):
        print_line(
            f"{plural(result.total - len(rows), 'earlier entry', 'earlier entries')} left out; --limit 0 shows all",
            err=True,
        )


def _with_open_conditions(place: TrailPlace) -> tuple[int, ...]:
    """Return the numbers of the decisions with an open condition."""
    # Slow: imports all code of a gate.
    from reviews.history.people import obligations

    obligations_result = obligations(place.history(), time.time_ns())
    return tuple(sorted({obligation.made for obligation in obligations_result if obligation.state == "open"}))


def as_data(recorded: RecordedEntry) -> dict[str, Any]:
    """Return an entry as `--json` gives it."""
    return recorded.entry.model_dump(mode="json") | {"digest": recorded.digest}


def when(recorded: RecordedEntry) -> str:
    """Return the time of an entry."""
    return datetime.fromtimestamp(recorded.time_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _gist(recorded: RecordedEntry) -> str:
    # Entries of every kind, newer and damaged ones too.
    texts = {name: str(recorded.raw[name]) for name in _LISTED if recorded.raw.get(name) not in (None, "")}
    # The beginning of a digest is enough to find it.
    displayed_texts = (
        f"{name}={text[:19]}..." if text.startswith("sha256:") else f"{name}={text}" for name, text in texts.items()
    )
    return masked_line(" ".join(displayed_texts), 100) or recorded.key
