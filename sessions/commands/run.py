"""`peergate start | resume | pause | cancel`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import typer

from reviews.history.people import waits_for_budget
from reviews.trail.tables.pointer import check_address, keep_database
from sessions.commands.options import (
    DEFAULT_RUNS,
    HERE,
    SPEC_FILE,
    Answer,
    AnswerReason,
    By,
    Profile,
    RequiredRun,
    Run,
    Runs,
    SessionName,
    chosen,
    complete_spec,
    need_reason,
)
from sessions.commands.output import print_line, say
from sessions.commands.status import print_summary
from sessions.pages.overview import EXIT_CODES, find_runs, overview
from sessions.pages.report.live_display import Terminal
from sessions.run.lease import is_running, lease
from sessions.run.pause import PAUSE, when_free
from sessions.run.private_files import warn_of_readers
from sessions.run.run_history import read_history
from sessions.run.run_layout import require_run
from sessions.session import PauseSignal
from specs.loading.loading import find_spec, list_shipped_specs
from specs.session_words import session_words
from specs.system.errors import ExitCode

app = typer.Typer()


@app.command()
def start(
    spec: Annotated[
        str,
        typer.Argument(
            metavar="SPEC",
            help=f"{SPEC_FILE}: {', '.join(list_shipped_specs())}.",
            autocompletion=complete_spec,
            show_default="this folder",
        ),
    ] = HERE,
    name: SessionName = None,
    runs: Runs = DEFAULT_RUNS,
    profile: Profile = None,
    launcher: Annotated[
        str | None,
        typer.Option("--launcher", help="Where its jobs run; the spec's by default (docs/how-to/launchers.md)."),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            "--database", metavar="URL", help="Record this and later sessions there (docs/explanation/scale.md)."
        ),
    ] = None,
    signed: Annotated[
        bool, typer.Option("--signed", help="Start only with a person's signature on the spec (`peergate spec sign`).")
    ] = False,
) -> None:
    """Register a spec and run the session, gate by gate."""
    # Slow, here and below: the session graph takes a second to import.
    from sessions.runtime import runtime

    if database is not None:
        use_database(runs, database)
    path = find_spec(spec)
    warn_of_readers(find_runs(runs))
    try:
        run = runtime.start(path, runs, name, Terminal(), profile=profile, launcher=launcher, signed=signed)
    except PauseSignal as paused:
        _exit_paused(runs / str(paused))
    finish(run)


def use_database(runs: Path, address: str) -> None:
    """Connect to a database, and keep it for the sessions that begin in this workspace from now on.

    Raises:
        UserError: this is not an address, or the database refuses; nothing was kept.
        DatabaseUnreachable: it cannot be reached.
    """
    from reviews.trail.tables.postgres_connection import open_database

    open_database(check_address(address, "--database"), making=True).close()
    keep_database(runs, address)


@app.command()
def resume(
    run: Run = None,
    runs: Runs = DEFAULT_RUNS,
    answer: Annotated[
        Answer | None,
        typer.Option("--answer", help="Answer a waiting session: try again, override the gate, or stop."),
    ] = None,
    reason: AnswerReason = "",
    by: By = None,
) -> None:
    """Continue a paused, killed or waiting session."""
    carry_on(chosen(run, runs), answer, reason, by)


def carry_on(
    run: Path, answer: Answer | None, reason: str, by: str | None = None, expires: float | None = None
) -> NoReturn:
    """Continue a session, with an answer or without, and end with its exit code."""
    from sessions.runtime import runtime

    need_reason(answer, reason)
    warn_of_readers([run])
    try:
        run = runtime.resume(run, Terminal(), answer, reason, by, expires)
    except PauseSignal:
        _exit_paused(run)
    finish(run)


@app.command()
def pause(run: Run = None, runs: Runs = DEFAULT_RUNS) -> None:
    """Ask a running session to pause at the next safe place, and wait until it has.

    Ctrl-C in its terminal does the same. Its job continues. Exit code 0 if the session no longer runs, or was not
    running.
    """
    run = require_run(chosen(run, runs)).resolve()
    ran = is_running(run)
    if ran:
        with when_free(run, PAUSE, lease, say):
            pass
    state = overview(run)
    facts = {
        "paused": f"{'paused' if ran else 'is paused already'}; `peergate resume {session_words(run)}` continues",
        "waiting": f"{'now waits' if ran else 'does not run, it waits'} for a person; "
        f"`peergate status {session_words(run)}`",
        "closed": f"{'ended before it paused' if ran else 'has ended'}: {state.decision}",
        "running": "was resumed by someone else",
    }
    print_line(f"{run.name}: {facts.get(state.state, state.state)}")


@app.command()
def cancel(run: RequiredRun, runs: Runs = DEFAULT_RUNS) -> None:
    """End a session for good, its running job included; waits until it has ended."""
    from sessions.runtime import runtime

    run = runtime.cancel(chosen(run, runs), Terminal())
    state = overview(run)
    print_line(f"{state.name}: {state.state}, {state.decision}")


def _exit_paused(run: Path) -> NoReturn:
    print_line(f"paused; `peergate resume {session_words(run)}` continues", err=True)
    raise SystemExit(int(ExitCode.INTERRUPTED))


def finish(run: Path) -> NoReturn:
    """Print the state of a session and end with its exit code."""
    print_summary(run)
    state = overview(run)
    code = EXIT_CODES[state.decision] if state.decision else ExitCode.BLOCKED
    if state.state == "waiting" and waits_for_budget(read_history(run)) is not None:
        code = ExitCode.BUDGET
    raise SystemExit(int(code))
