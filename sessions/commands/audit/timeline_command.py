"""`peergate audit log | diff | export`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from reviews.audit.export import export_run
from sessions.commands.audit.list_command import when
from sessions.commands.named_place import place_of
from sessions.commands.options import DEFAULT_RUNS, Json, RequiredRun, RequiredTrailRun, Runs, TrailRun
from sessions.commands.output import print_json, print_line
from sessions.pages.report.timeline import describe_entries
from sessions.pages.report.trail_page import trail_page
from sessions.pages.trail_place import TrailPlace
from sessions.run.disk_errors import telling_no_place
from sessions.run.private_files import as_the_user_wants
from sessions.run.run_layout import STORE
from sessions.run.terminal import masked_line
from specs.system.errors import PeergateError, UserError
from specs.system.text import plural

app = typer.Typer()


@app.command("log")
def log(run: TrailRun = None, runs: Runs = DEFAULT_RUNS, as_json: Json = False) -> None:
    """Print the timeline of a session: gates, who judged, outcomes, costs."""
    place = place_of(run, runs)
    steps = list(describe_entries(place.history()))
    if as_json:
        rows = [(step.entry, {"what": step.what, "lines": list(step.lines)}) for step in steps]
        log = [{"entry": value.seq, "time": when(value), "kind": value.kind} | statements for value, statements in rows]
        print_json({"log": log})
        return
    for step in steps:
        print_line(f"{when(step.entry)}  entry {step.entry.seq}: {masked_line(step.what, 300)}")
        for line in step.lines:
            print_line(f"    {masked_line(line, 300)}")
    if not steps:
        print_line("nothing was decided, launched or asked yet")


@app.command("diff")
def diff(
    run: RequiredTrailRun,
    first: Annotated[str, typer.Argument(help="Entry number or key.")],
    second: Annotated[str, typer.Argument(help="Entry number or key.")],
    runs: Runs = DEFAULT_RUNS,
    as_json: Json = False,
) -> None:
    """Compare two entries and what they point to.

    Compares two attempts' checks, two verdicts or two plans, value by value.
    """
    place = place_of(run, runs)
    entries = place.history()
    # Whole bodies, of any kinds.
    bodies = (place.entry_named(entries, name).raw for name in (first, second))
    value, two = (dict(_leaves("", {name: _value(place, value) for name, value in body.items()})) for body in bodies)
    changed = [
        {"where": name, "first": value.get(name), "second": two.get(name)}
        for name in sorted(value.keys() | two.keys())
        if value.get(name) != two.get(name)
    ]
    if as_json:
        print_json({"first": first, "second": second, "differences": changed})
        return
    for difference in changed:
        print_line(masked_line(difference["where"] or "", 200))
        for mark, name in (("-", "first"), ("+", "second")):
            print_line(f"  {mark} {masked_line(difference[name] or 'nothing', 300)}")
    if not changed:
        print_line("no difference")


def _value(place: TrailPlace, value: Any) -> Any:
    """Return a value, or the stored value whose digest it is."""
    if isinstance(value, str) and value.startswith("sha256:"):
        with suppress(PeergateError):
            return place.value(value)
    return value


def _leaves(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from _leaves(f"{name}.{key}" if name else str(key), child)
    elif isinstance(value, list) and value:
        for number, child in enumerate(value):
            yield from _leaves(f"{name}[{number}]", child)
    else:
        yield name, json.dumps(value, ensure_ascii=False)


@app.command("export")
def export(
    run: RequiredRun,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to create; it must not exist yet.")],
    runs: Runs = DEFAULT_RUNS,
) -> None:
    """Write the trail as a folder that anyone can verify.

    It holds C2SP tlog-tiles, proofs, evidence, and a page for people.
    """
    place = place_of(run, runs)
    if place.is_export:
        raise UserError("already an export", where=str(run))
    with as_the_user_wants(), telling_no_place(folder):
        walk, count = export_run(place.folder, place.trail.name, STORE, folder, trail_page)
    print_line(f"{folder}: {plural(walk.tree.size, 'entry', 'entries')}, {plural(count, 'file')}, root {walk.root}")
    print_line(f"verify: peergate audit verify {folder}")
