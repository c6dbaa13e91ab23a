"""`peergate override | retract | amend`: commands for people alone."""

from __future__ import annotations

import getpass
import time
from typing import Annotated, NoReturn

import typer

from reviews.history.recorded_history import is_in_force
from reviews.trail.chain.envelope import RecordedEntry
from sessions.commands.options import DEFAULT_RUNS, By, RequiredRun, Run, Runs, chosen
from sessions.commands.output import print_line
from sessions.commands.run import carry_on
from sessions.commands.status import print_ways_out
from sessions.pages.report.live_display import Terminal
from sessions.pages.report.next_steps import waiting_for
from sessions.run.run_history import read_history
from sessions.run.terminal import masked_line
from sessions.runtime import human_actions
from specs.loading.loading import find_spec
from specs.system.errors import ExitCode, UserError

app = typer.Typer()
Why = Annotated[str, typer.Option("--reason", help="Why; recorded in the trail and in every report.")]


@app.command()
def override(
    reason: Why,
    run: Run = None,
    gate: Annotated[bool, typer.Option("--gate", help="Approve the gate that waits, and continue.")] = False,
    check: Annotated[str | None, typer.Option("--check", help="Lift this check from now on; needs --stage.")] = None,
    stage: Annotated[str | None, typer.Option("--stage", help="The stage a check is lifted for.")] = None,
    condition: Annotated[str | None, typer.Option("--condition", help="Waive this condition of an approval.")] = None,
    by: By = None,
    expires: Annotated[str | None, typer.Option("--expires", help="When it ends: 90m, 12h, 2d.")] = None,
    runs: Runs = DEFAULT_RUNS,
) -> None:
    """Lift a gate, a check or a condition, in your name.

    Only people can do this; every report counts it. A session that then reaches its goal ends as overridden, not as
    accepted.
    """
    who = by or getpass.getuser()
    if [gate, check is not None, condition is not None].count(True) != 1:
        raise UserError("nothing to override specified", hint="one of --gate, --check ID --stage STAGE, --condition ID")
    if gate:
        ends = human_actions.expiry(expires, time.time())
        carry_on(chosen(run, runs), "approve", reason, who, ends)
    elif check is not None:
        if stage is None:
            raise UserError("a check can be lifted for one stage only", hint=f"add --stage to --check {check}")
        lifted = human_actions.lift_check(chosen(run, runs), check, stage, who, reason, expires)
        _print_entry(lifted, f"check {check} is lifted for {stage}")
    elif condition is not None:
        waived = human_actions.waive_condition(chosen(run, runs), condition, who, reason, expires)
        _print_entry(waived, f"condition {condition} is waived")


@app.command()
def retract(
    run: RequiredRun,
    entry: Annotated[str, typer.Argument(help="The judgement: its entry number or key, for example decision/sft.1.")],
    reason: Why,
    by: By = None,
    runs: Runs = DEFAULT_RUNS,
) -> None:
    """Take a decision back, with everything that was granted after it."""
    run = chosen(run, runs)
    used = human_actions.retract(run, entry, by or getpass.getuser(), reason, Terminal())
    _print_entry(used, f"taken back: {', '.join(used.body.judgements)}")
    history = read_history(run)
    if history.is_closed:
        print_line(
            "the session is closed and stays so; its state is now *retracted*, in `list`, `status` and the report"
        )
        return
    print_line("what you can do:")
    print_ways_out(waiting_for(history, run)["answers"])


@app.command()
def amend(
    run: RequiredRun,
    reason: Why,
    spec: Annotated[
        str | None,
        typer.Argument(help="The changed spec, where its data files are found as before.", show_default=False),
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option("--max-cost", help="Instead of a spec: a larger budget in USD, nothing else.")
    ] = None,
    by: By = None,
    override: Annotated[bool, typer.Option("--override", help="Put it in force whatever its review says.")] = False,
    runs: Runs = DEFAULT_RUNS,
) -> NoReturn:
    """Change the registered spec of an open session.

    The change is reviewed like a design. Exit codes: 0 in force, 2 it cannot be amended, 3 or 4 the review did not
    approve.
    """
    if (spec is None) == (max_cost is None):
        raise UserError("no change specified", hint="a spec, or --max-cost USD")
    arguments = (by or getpass.getuser(), reason, override, Terminal())
    if max_cost is not None:
        recorded = human_actions.raise_budget(chosen(run, runs), max_cost, *arguments)
    else:
        recorded = human_actions.amend(chosen(run, runs), find_spec(str(spec)), *arguments)
    body, in_force = recorded.body, is_in_force(recorded)
    _print_entry(recorded, f"amendment: {body.outcome}{', overridden' if body.overridden else ''}")
    for change in body.changes:
        message = f"{change.pointer}: {change.before} -> {change.after}"
        print_line(f"  {masked_line(message, 2000)}")
    for line in () if in_force else body.reasons:
        print_line(f"  - {masked_line(line, 2000)}")
    if in_force and body.exploratory:
        print_line("  every later claim of this session is exploratory: data had been seen")
    print_line("in force" if in_force else "not in force: the session stays as it was registered")
    refused = ExitCode.REJECTED if body.outcome == "reject" else ExitCode.BLOCKED
    raise SystemExit(int(ExitCode.DONE if in_force else refused))


def _print_entry(recorded: RecordedEntry, text: str) -> None:
    print_line(f"entry {recorded.seq}: {masked_line(text, 1000)}", err=True)
