"""`peergate mcp`: an MCP client builds a session. stdout carries only the protocol."""

from __future__ import annotations

import sys
import threading
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sessions.commands.audit.trail_place import Place, session_at
from sessions.commands.options import DEFAULT_RUNS, Profile, Runs, SessionName, session_words
from sessions.commands.output import print_line
from sessions.commands.run import finish
from sessions.report.overview import find_runs
from sessions.run.private_files import warn_of_readers
from sessions.run.run_layout import TRAIL
from sessions.session import Paused
from sessions.view.places import Scope
from specs.errors import ExitCode, UserError

if TYPE_CHECKING:
    from sessions.builder.mcp.transports import Transport


app = typer.Typer()


@app.command("mcp")
def serve(
    target: Annotated[
        str | None,
        typer.Argument(metavar="[RUN|SPEC]", help="A session, or the spec to open one with.", show_default=False),
    ] = None,
    read: Annotated[
        bool, typer.Option("--read", help="Only let the client read: one session, or all without RUN.")
    ] = False,
    name: SessionName = None,
    runs: Runs = DEFAULT_RUNS,
    http: Annotated[
        str | None, typer.Option("--http", metavar="HOST:PORT", help="Serve over HTTP there, not over stdio.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="The bearer token for HTTP, mode 0600; made if not there.")
    ] = None,
    profile: Profile = None,
) -> None:
    """Let an MCP client, such as Claude Code or Codex, build or read sessions (docs/how-to/mcp.md).

    Ends with the session's exit code.
    """
    if read:
        _let_read(target, runs, http, token_file)
        return
    if target is None:
        raise UserError("no session and no spec was named", hint="`peergate mcp SPEC`, or --read to only read")
    try:
        from sessions.builder.mcp.session_driver import Serving, find_target
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
    with redirect_stdout(sys.stderr):
        finish(run)


def _let_read(target: str | None, runs: Path, http: str | None, token_file: Path | None) -> None:
    """Serve states, numbers, gates and curves until the client leaves or Ctrl-C."""
    try:
        from sessions.view.mcp_reader import SessionReader, make_server
    except ModuleNotFoundError as error:
        raise UserError(f"package '{error.name}' is not installed", hint="pip install 'peergate[mcp]'") from error
    place = None
    if target is not None:
        run = session_at(Path(target), runs).folder.resolve()
        place = Place(run, run / TRAIL)
    if place is None and not runs.is_dir():
        raise UserError("there is no such folder", where=str(runs), hint="--runs names the folder of the run folders")
    transport, gone = _transport(http, token_file), threading.Event()
    transport.start(make_server(SessionReader(Scope(runs, place))), gone.set)
    with suppress(KeyboardInterrupt):
        gone.wait()
    transport.stop()


def _transport(http: str | None, token_file: Path | None) -> Transport:
    from sessions.builder.mcp.transports import Http, Stdio, read_token

    if http is None:
        if token_file is not None:
            raise UserError("a token is for HTTP", hint="add --http HOST:PORT, or leave --token-file out")
        return Stdio()
    if token_file is None:
        raise UserError("HTTP needs a token", hint="add --token-file FILE; a file that is not there is made")
    transport = Http(http, read_token(token_file))
    print_line(f"MCP at {transport.url}, with the token in {token_file}", err=True)
    return transport
