"""`peergate get model`: what a session leaves, copied and compared with its trail."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sessions.commands.options import DEFAULT_RUNS, Json, Run, Runs, chosen
from sessions.commands.output import print_json, print_line, say
from sessions.run.disk_errors import telling_no_place
from sessions.run.final_model import copy_model
from sessions.run.private_files import as_the_user_wants
from specs.session_words import displayed_path
from specs.system.digests import digest_file, list_tree

app = typer.Typer(help="Copy the model that a session leaves.", no_args_is_help=True)


@app.command("model")
def get_model(
    run: Run = None,
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="Folder to create; by default NAME-model here.", show_default=False),
    ] = None,
    unaccepted: Annotated[
        bool, typer.Option("--unaccepted", help="Also copy from a session that is open or was not accepted.")
    ] = False,
    runs: Runs = DEFAULT_RUNS,
    as_json: Json = False,
) -> None:
    """Copy the model of a session: the packaged checkpoint, or else the trained one.

    The copy is compared with what is recorded, and its files are listed with their digests. Exit codes: 0 copied, 2
    no such session, it is not accepted, or the folder exists; 4 it left no model, or it was pruned; 5 the trail
    or the weights differ from the record, and nothing remains.
    """
    path = chosen(run, runs)
    folder = folder or Path(f"{path.resolve().name}-model")
    with as_the_user_wants(), telling_no_place(folder):
        model = copy_model(path, folder, say, unaccepted=unaccepted)
    files = {path.relative_to(folder).as_posix(): digest_file(path) for path in list_tree(folder)}
    if as_json:
        print_json({"folder": str(folder)} | model._asdict() | {"files": files})
        return
    for name, digest in files.items():
        print_line(f"{digest}  {name}")
    print_line(f"{displayed_path(folder.resolve())}: {model.path} of {model.stage}.{model.attempt}, {model.digest}")
