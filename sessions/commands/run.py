"""`peergate start | resume | cancel`."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from reviews.gate.human_answers import waits_for_budget
from reviews.trail.tables.open_table import read_entries
from sessions import runtime
from sessions.commands.output import print_line
from sessions.commands.status import print_summary
from sessions.report.live_display import Terminal
from sessions.report.overview import EXIT_CODES, find_runs, overview
from sessions.run.private_files import warn_of_readers
from sessions.run.run_layout import TRAIL
from sessions.runtime import Answer
from sessions.session import Paused
from specs.errors import ExitCode, UserError
from specs.resources import LauncherName
from specs.session.loading import find_spec


def start(
    spec: str, name: str | None, runs: Path, profile: str | None = None, launcher: LauncherName | None = None
) -> None:
    """Start a session and end with its exit code."""
    path = find_spec(spec)
    warn_of_readers(find_runs(runs))
    terminal = Terminal()
    try:
        run = runtime.start(path, runs, name, terminal, profile=profile, launcher=launcher)
    except Paused as paused:
        _paused(str(paused), runs)
    finish(run)


def resume(
    name: str, runs: Path, answer: Answer | None, reason: str, by: str | None = None, expires: float | None = None
) -> None:
    """Go on with a session and end with its exit code."""
    if answer and not reason:
        raise UserError("an answer needs a reason", hint='for example --reason "the first job ran out of memory"')
    warn_of_readers([runs / name])
    try:
        run = runtime.resume(runs / name, Terminal(), answer, reason, by, expires)
    except Paused:
        _paused(name, runs)
    finish(run)


def cancel(name: str, runs: Path) -> None:
    """Cancel a session."""
    run = runtime.cancel(runs / name, Terminal())
    state = overview(run)
    print_line(f"{name}: {state.state}, {state.decision}")


def _paused(name: str, runs: Path) -> NoReturn:
    where = "" if runs == Path("runs") else f" --runs {runs}"
    print_line(f"paused; `peergate resume {name}{where}` goes on", err=True)
    raise SystemExit(int(ExitCode.INTERRUPTED))


def finish(run: Path) -> NoReturn:
    """Print how a session stands and end with its exit code."""
    print_summary(run)
    state = overview(run)
    code = EXIT_CODES[state.decision] if state.decision else ExitCode.BLOCKED
    if state.state == "waiting" and waits_for_budget(read_entries(run / TRAIL)) is not None:
        code = ExitCode.BUDGET
    raise SystemExit(int(code))
