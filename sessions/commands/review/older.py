"""`peergate review import`: reviews of older trails as records."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from reviews.legacy.folder import read_folder
from reviews.legacy.records import LegacyTrail, counts
from sessions.commands.options import Json
from sessions.commands.output import print_json, print_line, print_table
from sessions.run.terminal import masked_line

_QUIET_S = 2.0
_EVIDENCE = 80
_LISTED = 40
"""Folders that are printed; `--json` has all."""


app = typer.Typer()


@app.command("import")
def import_folder(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with reviews: .md .txt .json .jsonl .log")],
    as_json: Json = False,
) -> None:
    """Read a folder of free-text reviews of older trails as records.

    A record says what a review decided, if it did. Read-only: nothing is written, least of all into the trail of a
    session, so a record can never open a gate. What is not clear is 'undetermined', for a person to read.
    """
    trail = read_folder(folder, Counter())
    if as_json:
        print_json(trail.as_json())
    else:
        print_trail(trail)


class Counter:
    """Reports on stderr how many files were read, if that takes longer than two seconds."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _QUIET_S

    def __call__(self, done: int, of: int) -> None:
        """Note that another file was read."""
        if time.monotonic() >= self._next and done < of:
            self._next = time.monotonic() + _QUIET_S
            print_line(f"read {done} of {of} files", err=True)


def print_trail(trail: LegacyTrail) -> None:
    """Print a trail for a person."""
    rows = [
        (record.source, record.status, record.verdict or "-", masked_line(record.evidence, _EVIDENCE))
        for record in trail.records
    ]
    print_table(("source", "status", "verdict", "evidence"), rows)
    message = ", ".join(f"{count} {name}" for name, count in counts(trail.records).items()) or "none"
    print_line()
    print_line(f"{len(trail.records)} records: {message}")
    if trail.passed_over:
        print_line(f"passed over: {', '.join(trail.passed_over[:_LISTED])}")
    print_line("read-only: no record is in a session's trail, and none can open a gate")
