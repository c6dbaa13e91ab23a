"""`peergate transcript`: what the builder said and did, attempt by attempt."""

from __future__ import annotations

import re
from pathlib import Path

from reviews.trail.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.commands.output import print_json, print_line
from sessions.report.transcript import Transcript, lines_of
from sessions.run.run_layout import STORE, TRAIL, require_run, run_folder
from specs.errors import UserError


def transcript(run: Path, named: str | None, as_json: bool) -> None:
    """Print the transcript of all attempts, of a stage, or of one attempt.

    Raises:
        UserError: nothing of that name is on record.
    """
    run = require_run(run_folder(run))
    told = list(Transcript(Store(run / STORE)).attempts(read_entries(run / TRAIL)))
    if named is not None:
        stage, attempt = _place(named)
        chosen = [one for one in told if one.stage == stage and attempt in (None, one.attempt)]
        if not chosen:
            there = ", ".join(f"{one.stage}.{one.attempt}" for one in told) or "nothing yet"
            raise UserError(f"nothing is on record of '{named}'", where=str(run), hint=f"there is: {there}")
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
