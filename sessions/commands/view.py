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

from reviews.trail.tiles import is_export
from sessions.commands.audit.trail_place import place_of
from sessions.commands.options import DEFAULT_RUNS, NEWEST, By, Runs, complete_run
from sessions.commands.output import print_line
from sessions.run.run_layout import TRAIL
from specs.errors import UserError

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
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in your browser.")] = False,
) -> None:
    """Show sessions in a browser on this machine: results, samples, gates, numbers, trails.

    The page follows running sessions and is read-only without --act. It listens on 127.0.0.1 and lets in only browsers
    that open the printed address. Ctrl-C ends it.
    """
    try:
        from sessions.view.places import Scope
        from sessions.view.serving import Bound
    except ModuleNotFoundError as error:
        raise UserError(f"package '{error.name}' is not installed", hint="pip install 'peergate[view]'") from error
    if run is None:
        if not runs.is_dir():
            raise UserError(
                "there is no such folder", where=str(runs), hint="--runs names the folder of the run folders"
            )
        scope, path = Scope(runs), ""
    else:
        place = place_of(None if run == NEWEST else run, runs)
        is_session = not is_export(place.folder) and place.trail.name == TRAIL
        folder = place.folder.resolve()
        scope = Scope(folder.parent) if is_session else Scope(folder.parent, place)
        # The address that is printed leads to a page whose name needs no quoting.
        path = f"s/{quote(folder.name)}/" if re.fullmatch(r"[\w.-]+", folder.name, re.ASCII) else ""
    bound = Bound(scope, port, (by or getpass.getuser()) if act else None)
    print_line(bound.address(path))
    # Who started this through a pipe waits for the address.
    sys.stdout.flush()
    with bound.door(path) if open_browser else nullcontext("") as door:
        if door:
            webbrowser.open(door)
        bound.serve()
