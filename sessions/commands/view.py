"""`peergate view`."""

from __future__ import annotations

import getpass
import re
import sys
import webbrowser
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from reviews.trail.anchors import read_anchor
from reviews.trail.chain.tiles import is_export
from sessions.commands.named_place import place_of
from sessions.commands.options import DEFAULT_RUNS, NEWEST, By, Runs, complete_run
from sessions.commands.output import print_line
from sessions.run.run_layout import TRAIL
from specs.system.errors import UserError
from specs.system.extras import install_hint

app = typer.Typer()


@app.command()
def view(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN|EXPORT",
            help="A session by name or run folder, a folder of requested reviews, or an export; - for the newest "
            "session. All sessions without it.",
            autocompletion=complete_run,
            show_default=False,
        ),
    ] = None,
    runs: Runs = DEFAULT_RUNS,
    port: Annotated[int, typer.Option("--port", help="Port on 127.0.0.1; a free one for 0.", min=0, max=65535)] = 0,
    act: Annotated[bool, typer.Option("--act", help="Also answer what sessions ask you, on their pages.")] = False,
    by: By = None,
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="List all sessions in the workspace's database.")
    ] = False,
    anchor: Annotated[
        list[Path] | None,
        typer.Option("--anchor", help="Signed head of RUN kept elsewhere, to check its trail by; can be repeated."),
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in your browser.")] = False,
) -> None:
    """Show sessions in a browser on this machine: results, samples, gates, numbers, trails.

    The page follows running sessions and is read-only without --act. It listens on 127.0.0.1 and lets in only browsers
    that open the printed address. Ctrl-C ends it.
    """
    try:
        from sessions.pages.view.places import Scope
        from sessions.pages.view.serving import PageServer
    except ModuleNotFoundError as error:
        raise UserError(f"package '{error.name}' is not installed", hint=install_hint("view")) from error
    if run is None:
        if anchor:
            raise UserError("--anchor takes a single trail", hint="name its session or export")
        if not everywhere and not runs.is_dir():
            raise UserError("no such folder", where=str(runs), hint="--runs names the folder of the run folders")
        scope, path = Scope(runs, everywhere=everywhere), ""
        if everywhere:
            # A database that cannot be reached is an error now, and not a page.
            scope.list_sessions()
    else:
        if everywhere:
            raise UserError("--everywhere cannot be combined with RUN", hint="omit one of them")
        place = place_of(None if run == NEWEST else run, runs)
        is_session = not is_export(place.folder) and place.trail.name == TRAIL
        folder = place.folder.resolve()
        heads = tuple(read_anchor(path) for path in anchor or ())
        scope = Scope(folder.parent, None if is_session and not heads else place, anchors=heads)
        # The address that is printed leads to a page whose name needs no quoting.
        path = f"s/{quote(folder.name)}/" if re.fullmatch(r"[\w.-]+", folder.name, re.ASCII) else ""
    bound = PageServer(scope, port, (by or getpass.getuser()) if act else None)
    print_line(bound.address(path))
    # Who started this through a pipe waits for the address.
    sys.stdout.flush()
    with bound.door(path) if open_browser else nullcontext("") as door:
        if door:
            webbrowser.open(door)
        bound.serve()
