"""`peergate export`: what a session found, in the format of another tool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sessions.commands.options import DEFAULT_RUNS, Json, Runs, chosen, complete_run
from sessions.commands.output import print_json, print_line
from sessions.exports.formats import FORMATS, export, send
from sessions.run.disk_errors import telling_no_place
from sessions.run.private_files import as_the_user_wants
from specs.session_words import displayed_path
from specs.system.errors import UserError

app = typer.Typer()


@app.command("export")
def export_run(
    format: Annotated[str, typer.Argument(metavar="FORMAT", help=f"{', '.join(FORMATS)}.")],
    run: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN...",
            help="A session: its name in the folder of --runs, or its run folder; several only for paper. The newest "
            "without it.",
            autocompletion=complete_run,
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder to create; by default NAME-FORMAT here.", show_default=False),
    ] = None,
    to_server: Annotated[
        bool,
        typer.Option("--send", help="For mlflow: add new entries to the server of MLFLOW_TRACKING_URI."),
    ] = False,
    runs: Runs = DEFAULT_RUNS,
    as_json: Json = False,
) -> None:
    """Write what a session found in the format of another tool.

    `inspect` gets its evaluations; `tensorboard`, `wandb`, `mlflow` and `trackio` get metrics, curves and gates.
    `paper` is Markdown and LaTeX: each number in it names the entry of the trail that it comes from.

    Known secrets are masked. For the evidence itself, with which others verify a session, use `audit export`. Exit
    codes: 0 written, 2 no such format or session, or the folder exists; 4 nothing to write; 5 the trail is damaged, and
    nothing was written.
    """
    paths = [chosen(path, runs) for path in run or (None,)]
    path = paths[0]
    if to_server:
        if out is not None:
            raise UserError("--out cannot be used with --send", hint="omit one of them")
        if len(paths) > 1:
            raise UserError("--send takes one session", hint="send them one after the other")
        lines = send(format, path)
        if as_json:
            print_json({"folder": None, "lines": lines})
            return
        print_line(f"sent: {'; '.join(lines)}")
        return
    folder = out or Path(f"{path.resolve().name}-{format}")
    with as_the_user_wants(), telling_no_place(folder):
        lines = export(format, paths, folder)
    if as_json:
        print_json({"folder": str(folder), "lines": lines})
        return
    for line in lines:
        print_line(line)
    print_line(f"written to {displayed_path(folder.resolve())}", err=True)
