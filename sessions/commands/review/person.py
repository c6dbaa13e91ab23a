"""`peergate review show | give`: a person reviews."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from reviews.reviewers.person import give, summary, template, waiting
from reviews.trail.store import Store
from reviews.trail.tables.open_table import read_entries
from reviews.trail.trail import Trail
from sessions.commands.options import Json, RunPath
from sessions.commands.output import print_json, print_line
from sessions.run.run_layout import STORE, TRAIL, require_run, run_folder
from specs.errors import UserError
from specs.text import json_text
from specs.trail.verdict import Packet

app = typer.Typer()


@app.command("show")
def show_packet(run: RunPath, as_json: Json = False) -> None:
    """Show the packet that waits for a person's verdict, and the form of one."""
    run = run_folder(run)
    packet, digest = _waiting(run)
    if as_json:
        print_json({"packet": packet.model_dump(mode="json"), "digest": digest, "form": template(packet)})
        return
    for line in summary(packet):
        print_line(line)
    print_line()
    print_line(f"the whole packet: peergate audit show {run} {digest}")
    print_line("fill this in and hand it in with `peergate review give`:")
    print_line()
    sys.stdout.write(json_text(template(packet)) + "\n")


@app.command("give")
def give_verdict(
    run: RunPath,
    file: Annotated[Path, typer.Option("--file", help="The verdict: a JSON file in the form `review show` prints.")],
) -> None:
    """Hand in a person's verdict on the gate that waits."""
    run = require_run(run_folder(run))
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read: {error}", where=str(file)) from error
    trail = Trail(run / TRAIL, run.resolve().name)
    try:
        trail.verify_chain()
        given = give(trail, Store(run / STORE), text)
    finally:
        trail.close()
    print_line(f"recorded as {given.entry.key}, signed with your key; `peergate resume {run.name}` continues")


def _waiting(run: Path) -> tuple[Packet, str]:
    _, digest = waiting(read_entries(require_run(run) / TRAIL))
    return Packet.model_validate(Store(run / STORE).get_value(digest)), digest
