"""`peergate mcp`: an MCP client builds a session, or manages sessions. stdout carries only the protocol."""

from __future__ import annotations

import sys
import threading
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sessions.commands.options import DEFAULT_RUNS, Profile, Runs, SessionName
from sessions.commands.output import print_line
from specs.session_words import session_words
from specs.system.errors import ExitCode, UserError
from specs.system.extras import install_hint

if TYPE_CHECKING:
    from sessions.mcp.transports import TokenKind, Transport


app = typer.Typer()


@app.command("mcp")
def serve(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN|SPEC|FOLDER",
            help="A session, or the spec to open one with; with --manage a folder of specs.",
            show_default=False,
        ),
    ] = None,
    read: Annotated[
        bool, typer.Option("--read", help="Only let the client read: one session, or all without RUN.")
    ] = False,
    name: SessionName = None,
    runs: Runs = DEFAULT_RUNS,
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="HOST:PORT", help="Serve over HTTP at this address instead of stdio."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="The bearer token for HTTP, mode 0600; created if missing.")
    ] = None,
    profile: Profile = None,
    manage: Annotated[
        bool, typer.Option("--manage", help="Serve tools that write specs, start, watch and audit sessions instead.")
    ] = False,
    pods: Annotated[Path, typer.Option("--pods", help="With --manage: folder with the records of pods.")] = Path(
        "pods"
    ),
) -> None:
    """Let an MCP client, such as Claude Code or Codex, build, manage or read sessions (docs/how-to/mcp.md).

    Exits with the session's exit code.
    """
    if read and manage:
        raise UserError("--read and --manage cannot be combined", hint="start a server for each")
    if read:
        _let_read(target, runs, http, token_file)
        return
    if target is None:
        raise UserError("no session, spec or folder specified", hint="`peergate mcp SPEC`, or --read to only read")
    if manage:
        if name is not None or profile is not None:
            raise UserError("--name and --profile need a session to start", hint="start_session takes both")
        _manage(target, runs, pods, http, token_file)
        return
    try:
        from sessions.pages.overview import find_runs
        from sessions.run.private_files import warn_of_readers
        from sessions.runtime.session_driver import Serving, find_target
        from sessions.session import PauseSignal
    except ModuleNotFoundError as error:
        raise UserError(f"package '{error.name}' is not installed", hint=install_hint("mcp")) from error
    warn_of_readers(find_runs(runs))
    matching_target = find_target(target, runs, name, profile)
    serving = Serving(_transport(http, token_file))
    try:
        run = serving.serve(matching_target)
    except PauseSignal as paused:
        print_line(f"paused; `peergate mcp {session_words(runs / str(paused))}` continues", err=True)
        raise SystemExit(int(ExitCode.INTERRUPTED)) from None
    # Slow: reports.
    from sessions.commands.run import finish

    with redirect_stdout(sys.stderr):
        finish(run)


def _manage(folder: str, runs: Path, pods: Path, http: str | None, token_file: Path | None) -> None:
    if not Path(folder).is_dir():
        raise UserError("--manage needs a folder of specs", where=folder)
    try:
        from sessions.mcp.management.server import serve as serve_management
    except ModuleNotFoundError as error:
        raise UserError(f"package '{error.name}' is not installed", hint=install_hint("mcp")) from error
    serve_management(_transport(http, token_file, "manage"), Path(folder), runs, pods)


def _let_read(target: str | None, runs: Path, http: str | None, token_file: Path | None) -> None:
    """Serve states, numbers, gates and curves until the client leaves or Ctrl-C."""
    try:
        from sessions.commands.named_place import session_at
        from sessions.mcp.reader.mcp_reader import SessionReader, make_server
        from sessions.pages.trail_place import TrailPlace
        from sessions.pages.view.places import Scope
        from sessions.run.run_layout import TRAIL
    except ModuleNotFoundError as error:
        raise UserError(f"package '{error.name}' is not installed", hint=install_hint("mcp")) from error
    place = None
    if target is not None:
        run = session_at(Path(target), runs).folder.resolve()
        place = TrailPlace(run, run / TRAIL)
    if place is None and not runs.is_dir():
        raise UserError("no such folder", where=str(runs), hint="--runs names the folder of the run folders")
    transport, gone = _transport(http, token_file, "read"), threading.Event()
    transport.start(make_server(SessionReader(Scope(runs, place))), gone.set)
    with suppress(KeyboardInterrupt):
        gone.wait()
    transport.stop()


def _transport(http: str | None, token_file: Path | None, kind: TokenKind = "build") -> Transport:
    from sessions.mcp.transports import Http, Stdio, read_token

    if http is None:
        if token_file is not None:
            raise UserError("--token-file requires --http", hint="add --http HOST:PORT, or omit --token-file")
        return Stdio()
    if token_file is None:
        raise UserError("--http requires a token", hint="add --token-file FILE, which is created if missing")
    transport = Http(http, read_token(token_file, kind))
    print_line(f"MCP at {transport.url}, with the token in {token_file}", err=True)
    return transport
