"""`peergate transcript`: what the builder said and did, attempt by attempt."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from reviews.trail.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.commands.options import Json, RunPath
from sessions.commands.output import print_json, print_line
from sessions.report.transcript import Transcript, lines_of
from sessions.run.run_layout import STORE, TRAIL, require_run, run_folder
from specs.errors import UserError

app = typer.Typer()


@app.command()
def transcript(
    run: RunPath,
    attempt: Annotated[
        str | None, typer.Argument(metavar="[STAGE[.ATTEMPT]]", help="Only this stage, or this attempt of it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what the builder said and did, and what the gate answered.

    Turns, calls, their results and costs, attempt by attempt.
    """
    run = require_run(run_folder(run))
    told = list(Transcript(Store(run / STORE)).attempts(read_entries(run / TRAIL)))
    if attempt is not None:
        stage, number = _place(attempt)
        chosen = [one for one in told if one.stage == stage and number in (None, one.attempt)]
        if not chosen:
            there = ", ".join(f"{one.stage}.{one.attempt}" for one in told) or "nothing yet"
            raise UserError(f"nothing is on record of '{attempt}'", where=str(run), hint=f"there is: {there}")
        told = chosen
    if as_json:
        print_json({"session": run.resolve().name, "attempts": [one.as_json() for one in told]})
        return
    for one in told:
        for line in lines_of(one):
            print_line(line)
        print_line()


def _place(named: str) -> tuple[str, int | None]:
    found = re.fullmatch(r"([a-z][a-z0-9_]*)(?:\.([0-9]{1,4}))?", named)
    if found is None:
        raise UserError(f"'{named}' is no attempt", hint="STAGE or STAGE.ATTEMPT, for example sample.2")
    return found[1], int(found[2]) if found[2] else None
