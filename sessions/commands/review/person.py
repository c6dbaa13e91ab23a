"""`peergate review show | give`: a person reviews."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from reviews.reviewers.person import give, summary, template, waiting
from reviews.trail.trail import Trail
from sessions.commands.named_place import session_at
from sessions.commands.options import DEFAULT_RUNS, Json, Run, Runs
from sessions.commands.output import print_json, print_line
from specs.session_words import session_words
from specs.system.errors import UserError
from specs.system.regular_files import read_regular
from specs.system.text import json_text
from specs.trail.verdict import Packet

app = typer.Typer()


@app.command("show")
def show_packet(run: Run = None, runs: Runs = DEFAULT_RUNS, as_json: Json = False) -> None:
    """Show the packet that waits for a person's verdict, and the form of one."""
    place = session_at(run, runs)
    _, digest = waiting(place.history())
    packet = Packet.model_validate(place.store.get_value(digest))
    if as_json:
        print_json({"packet": packet.model_dump(mode="json"), "digest": digest, "form": template(packet)})
        return
    for line in summary(packet):
        print_line(line)
    print_line()
    print_line(f"the whole packet: peergate audit show {place.folder} {digest}")
    print_line("fill this in and hand it in with `peergate review give`:")
    print_line()
    sys.stdout.write(json_text(template(packet)) + "\n")


@app.command("give")
def give_verdict(
    file: Annotated[Path, typer.Option("--file", help="The verdict: a JSON file in the form `review show` prints.")],
    run: Run = None,
    runs: Runs = DEFAULT_RUNS,
) -> None:
    """Hand in a person's verdict on the gate that waits."""
    place = session_at(run, runs)
    try:
        text = read_regular(file).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read: {error}", where=str(file)) from error
    with closing(Trail(place.trail, place.folder.resolve().name)) as trail:
        trail.verify_chain()
        arguments = give(trail, place.store, text)
    print_line(
        f"recorded as {arguments.key}, signed with your key; `peergate resume {session_words(place.folder)}` continues"
    )
