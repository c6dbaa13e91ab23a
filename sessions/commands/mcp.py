"""`peergate mcp`: an MCP client is the builder of a session. stdout belongs to the protocol; talk goes to stderr."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from sessions.commands.output import print_line
from sessions.commands.run import finish
from sessions.report.overview import find_runs
from sessions.run.private_files import warn_of_readers
from sessions.session import Paused
from specs.errors import ExitCode, UserError

if TYPE_CHECKING:
    from sessions.builder.mcp.transports import Transport


def serve(
    target: str, runs: Path, name: str | None, http: str | None, token_file: Path | None, profile: str | None = None
) -> None:
    """Serve a session's tools, and end with the session's exit code.

    Raises:
        UserError: there is no such run or spec, or the address and the token do not fit.
    """
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
        where = "" if runs == Path("runs") else f" --runs {runs}"
        print_line(f"paused; `peergate mcp {paused}{where}` goes on", err=True)
        raise SystemExit(int(ExitCode.INTERRUPTED)) from None
    with redirect_stdout(sys.stderr):
        finish(run)


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
