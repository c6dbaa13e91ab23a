"""`peergate mcp`: an MCP client builds a session, or manages sessions. stdout carries only the protocol."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sessions.commands.options import DEFAULT_RUNS, Profile, Runs, SessionName, session_words
from sessions.commands.output import print_line
from specs.errors import ExitCode, UserError

if TYPE_CHECKING:
    from sessions.builder.mcp.transports import Transport


app = typer.Typer()


@app.command("mcp")
def serve(
    target: Annotated[
        str,
        typer.Argument(
            metavar="RUN|SPEC|FOLDER", help="A session, or the spec to open one with; with --manage a folder of specs."
        ),
    ],
    name: SessionName = None,
    runs: Runs = DEFAULT_RUNS,
    http: Annotated[
        str | None, typer.Option("--http", metavar="HOST:PORT", help="Serve over HTTP there, not over stdio.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="The bearer token for HTTP, mode 0600; made if not there.")
    ] = None,
    profile: Profile = None,
    manage: Annotated[
        bool, typer.Option("--manage", help="Serve tools that write specs, start, watch and audit sessions instead.")
    ] = False,
) -> None:
    """Let an MCP client, such as Claude Code or Codex, build a session (docs/how-to/mcp.md).

    Ends with the session's exit code.
    """
    if manage:
        _manage(target, runs, http, token_file, name, profile)
        return
    try:
        from sessions.builder.mcp.session_driver import Serving, find_target
        from sessions.report.overview import find_runs
        from sessions.run.private_files import warn_of_readers
        from sessions.session import Paused
    except ModuleNotFoundError as error:
        raise UserError(f"package '{error.name}' is not installed", hint="pip install 'peergate[mcp]'") from error
    warn_of_readers(find_runs(runs))
    found = find_target(target, runs, name, profile)
    serving = Serving(_transport(http, token_file))
    try:
        run = serving.serve(found)
    except Paused as paused:
        print_line(f"paused; `peergate mcp {session_words(runs / str(paused))}` continues", err=True)
        raise SystemExit(int(ExitCode.INTERRUPTED)) from None
    # Slow: reports.
    from sessions.commands.run import finish

    with redirect_stdout(sys.stderr):
        finish(run)


def _manage(
    folder: str, runs: Path, http: str | None, token_file: Path | None, name: str | None, profile: str | None
) -> None:
    if name is not None or profile is not None:
        raise UserError("--name and --profile are for a session", hint="start_session takes both")
    if not Path(folder).is_dir():
        raise UserError("--manage needs a folder of specs", where=folder)
    try:
        from sessions.management.server import serve as serve_management
    except ModuleNotFoundError as error:
        raise UserError(f"package '{error.name}' is not installed", hint="pip install 'peergate[mcp]'") from error
    serve_management(_transport(http, token_file, manages=True), Path(folder), runs)


def _transport(http: str | None, token_file: Path | None, *, manages: bool = False) -> Transport:
    from sessions.builder.mcp.transports import Http, Stdio, read_token

    if http is None:
        if token_file is not None:
            raise UserError("a token is for HTTP", hint="add --http HOST:PORT, or leave --token-file out")
        return Stdio()
    if token_file is None:
        raise UserError("HTTP needs a token", hint="add --token-file FILE; a file that is not there is made")
    transport = Http(http, read_token(token_file, manages=manages))
    print_line(f"MCP at {transport.url}, with the token in {token_file}", err=True)
    return transport
