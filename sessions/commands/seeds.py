"""`peergate seeds | replicate`: one design over several seeds."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from reviews.comparison.seed_comparison import SeedComparison, compare_seed, together
from reviews.statistics.seed_variance import OverSeeds
from sessions.commands.named_place import session_at
from sessions.commands.options import DEFAULT_RUNS, Json, Run, Runs, chosen, complete_run
from sessions.commands.output import print_json, print_line, print_table, say
from sessions.pages.overview import overview
from sessions.pages.report.live_display import Terminal
from sessions.run.run_history import read_history
from sessions.run.run_layout import require_run
from sessions.session import PauseSignal
from specs.session_words import displayed_path, session_words
from specs.system.errors import ExitCode, UserError

app = typer.Typer()


@app.command()
def seeds(
    sessions: Annotated[
        list[Path],
        typer.Argument(metavar="RUN RUN...", help="Sessions of one design, a seed each.", autocompletion=complete_run),
    ],
    runs: Runs = DEFAULT_RUNS,
    as_json: Json = False,
) -> None:
    """Compare sessions of one design: the gain, with an interval over seeds and items."""
    read = [
        compare_seed(place.folder, place.history()) for place in (session_at(session, runs) for session in sessions)
    ]
    over, items = together(read), len(read[0].pairs)
    if as_json:
        print_json(as_data(read, over))
        return
    reached = {True: "reached", False: "not reached"}
    rows = [
        (value.session, str(value.seed), f"{value.gain:+.4f}", f"{value.p:.3g}", reached[value.reaches])
        for value in read
    ]
    print_table(("session", "seed", "gain", "exact McNemar p", "as registered"), rows)
    low, high = over.interval
    print_line(f"gain over {len(read)} seeds and {items} items: {over.difference:+.4f}")
    print_line(f"  95 % interval, seeds and items drawn:  {low:+.4f} to {high:+.4f}")
    if over.seed_interval is not None:
        low, high = over.seed_interval
        print_line(f"  95 % interval, Student's t over seeds: {low:+.4f} to {high:+.4f}")
    parts = f"{over.variance_items:.4f} between items, {over.variance_seeds:.4f} between seeds"
    print_line(f"  variance of one gain: {parts}, {over.variance_rest:.4f} the rest")
    print_line("not shown: that no other seed of this design was run; `peergate audit verify` checks each", err=True)


def as_data(read: Sequence[SeedComparison], over: OverSeeds) -> dict[str, Any]:
    """Return everything the command prints, in the form of its JSON."""
    return {
        "sessions": [
            {
                "session": value.session,
                "seed": value.seed,
                "gain": value.gain,
                "p": value.p,
                "as_registered": value.reaches,
            }
            for value in read
        ],
        "items": len(read[0].pairs),
        "gain": over.difference,
        "interval": list(over.interval),
        "seed_interval": list(over.seed_interval) if over.seed_interval else None,
        "variance": {"items": over.variance_items, "seeds": over.variance_seeds, "rest": over.variance_rest},
    }


@app.command()
def replicate(
    run: Run = None,
    runs: Runs = DEFAULT_RUNS,
    further: Annotated[
        int | None, typer.Option("--seeds", metavar="N", help="Register and run this many further seeds.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Run nothing; only count finished sessions.")] = False,
    by: Annotated[str | None, typer.Option("--by", help="Who asks for it; by default the user's name.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask, however the session ended.")] = False,
    as_json: Json = False,
) -> None:
    """Run the registered design of a closed session with further seeds, and count all of them.

    The seeds and the rule are registered in the session's trail before the first one runs. A seed that fails or is
    missing counts as no gain. Replicated means that the mean gain of the further seeds reaches the registered minimum
    effect and that its 95 % interval over seeds and items is above 0. Run it again to continue where it stopped.
    """
    # Slow: the session graph.
    from sessions.runtime.replication import count_seeds, first_of, plan_seeds, record_seeds, run_seeds

    path = chosen(run, runs)
    if (folder := first_of(path)) != path:
        say(f"{path.name} is one of the further seeds of {folder.name}")
    if not (show or yes):
        _confirm(folder, further)
    if further is not None:
        plan_seeds(folder, further, by or getpass.getuser())
    if not show:
        try:
            run_seeds(folder, Terminal(), say)
        except PauseSignal as paused:
            print_line(f"paused in {paused}; `peergate replicate {session_words(folder)}` continues", err=True)
            raise SystemExit(int(ExitCode.INTERRUPTED)) from paused
    counted = count_seeds(folder) if show else record_seeds(folder, by or getpass.getuser())
    replication, plan = counted.result, counted.plan
    if as_json:
        print_json({"unfinished": list(counted.unfinished), "recorded": counted.is_recorded, **replication.as_json()})
    else:
        rows = [
            (seed.session, str(seed.seed), f"{seed.comparison.gain:+.4f}", f"{seed.comparison.p:.3g}")
            if seed.comparison
            else (seed.session, str(seed.seed), "failed", seed.why)
            for seed in replication.seeds
        ]
        print_table(("session", "seed", "gain", "exact McNemar p, or why it failed"), rows)
        if counted.unfinished:
            print_line(
                f"{len(counted.unfinished)} of {len(plan.seeds)} have not ended: {', '.join(counted.unfinished)}"
            )
        else:
            print_line(f"{folder.name}: {replication.describe()}")
            print_line(f"verify: peergate audit verify {displayed_path(folder)}")
    if counted.unfinished:
        raise SystemExit(int(ExitCode.BLOCKED))


_SETTLED = ("approve", "null")


def _confirm(folder: Path, further: int | None) -> None:
    """Ask before money goes into seeds of a session that no gate accepted; raise UserError unless a person agrees."""
    state = overview(require_run(folder))
    if state.state != "closed" or state.decision in _SETTLED:
        return
    usd = read_history(folder).resolved.spec.budget.max_cost_usd
    cost = f"up to {usd:g} USD each" if further is None else f"up to {further * usd:g} USD for {further} seeds"
    question = f"{folder.name} was not accepted ({state.decision}); further seeds cost {cost}"
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError(question, where=str(folder), hint="add --yes to run them all the same")
    print_line(f"{question}. Type its name ({folder.name}) to run them all the same:")
    if sys.stdin.readline().strip() != folder.name:
        raise UserError("not confirmed; nothing was run", where=str(folder))
