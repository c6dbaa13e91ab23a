"""`peergate status | list | report | diagnose | transcript | graph`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from reviews.acceptance.criterion_state import acceptance_of
from reviews.history.history import History
from reviews.history.people import obligations, waits_for_budget
from sessions.commands.acceptance.backlog import acceptance_lines
from sessions.commands.options import DEFAULT_RUNS, Json, Runs, chosen, complete_run
from sessions.commands.output import print_indented, print_json, print_line, print_table
from sessions.pages.overview import Overview, find_runs, overview, waits_for_verdict
from sessions.pages.report.next_steps import WayOut, answers_to, remedies, waiting_for
from sessions.pages.report.page_result import page_result, page_scorecard
from sessions.pages.report.session_list import everywhere, list_overviews
from sessions.pages.result import further_seeds, question
from sessions.pages.view.job_progress import running_job
from sessions.run.money import ledger
from sessions.run.money.accounts import Accounts
from sessions.run.private_files import warn_of_readers
from sessions.run.run_history import read_history
from sessions.run.run_layout import INTERIM, REPORT_JSON, REPORT_MARKDOWN, require_run
from sessions.run.terminal import masked_line
from specs.session.design import Budget
from specs.session_words import below, displayed_path, session_words
from specs.system.errors import UserError
from specs.system.regular_files import read_regular
from specs.trail.gate_bodies import DecisionEntry, ToolCallEntry, ToolResultEntry, TurnEntry

app = typer.Typer()


@app.command("list")
def list_sessions(
    runs: Runs = DEFAULT_RUNS,
    all_of_database: Annotated[
        bool, typer.Option("--everywhere", help="All sessions in the workspace's database, from every workspace.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the sessions of a folder."""
    if not all_of_database and not runs.is_dir() and below(runs):
        raise UserError("no such folder", where=str(runs), hint="--runs names the folder of the run folders")
    overviews = everywhere(runs) if all_of_database else list_overviews(runs)
    if as_json:
        print_json({"sessions": [overview.as_json() for overview in overviews]})
        return
    if not overviews:
        print_line(f"no sessions in {runs}", err=True)
        return
    rows = [
        (
            session.name,
            session.state,
            session.decision or "-",
            session.stage or "-",
            (session.started or "-")[:16].replace("T", " "),
        )
        for session in overviews
    ]
    names = ("name", "state", "decision", "stage", "started (UTC)")
    if all_of_database:
        names, rows = (
            (*names, "place"),
            [(*row, str(session.path)) for row, session in zip(rows, overviews, strict=True)],
        )
    print_table(names, rows)
    explained = ("waiting", "damaged", "paused")
    for session in overviews:
        if session.reasons and (session.state in explained or session.decision == "cancelled"):
            print_line(f"{session.name}: {masked_line(session.reasons[0], 200)}")


@app.command()
def status(
    named: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN",
            help="A session: its name in the folder of --runs, or its run folder; several with --programme. The newest "
            "without it.",
            autocompletion=complete_run,
            show_default=False,
        ),
    ] = None,
    programme: Annotated[
        bool, typer.Option("--programme", help="Add several sessions up: ship-%, open criteria, effort.")
    ] = False,
    runs: Runs = DEFAULT_RUNS,
    as_json: Json = False,
) -> None:
    """Show a session's stage, decisions, money, time and acceptance criteria.

    With --programme it combines several sessions: for each base model, each criterion counts once, by its newest
    session.
    """
    if programme:
        _print_programme([chosen(run, runs) for run in named or find_runs(runs)], as_json)
        return
    if named and len(named) > 1:
        raise UserError(f"expected one session, got {len(named)}", hint="name one, or sum them up with --programme")
    run = require_run(chosen(named[0] if named else None, runs)).resolve()
    warn_of_readers([run])
    state = overview(run)
    history = read_history(run)
    budget = history.resolved.spec.budget
    spent = ledger.balance_of(history, budget)
    decisions = [entry.body.model_dump(include={"stage", "attempt", "outcome"}) for entry in history.of(DecisionEntry)]
    builder = builder_status(history, budget)
    conditions = obligations(history, time.time_ns())
    acceptance = acceptance_of(history)
    scorecard = page_scorecard(history)
    job = running_job(run, history)
    seeds = further_seeds(history)
    if as_json:
        places = {"spent_usd": 6, "reserved_usd": 6, "left_usd": 6, "hours": 4, "left_hours": 4}
        visible = [
            {
                "id": obligation.id,
                "stage": obligation.condition.stage,
                "text": obligation.condition.text,
                "state": obligation.state,
            }
            for obligation in conditions
        ]
        whole = {"budget": {name: round(getattr(spent, name), digits) for name, digits in places.items()}}
        whole |= {"decisions": decisions, "conditions": visible, "builder": builder, "acceptance": acceptance.as_json()}
        whole |= {"scorecard": scorecard}
        whole |= {"job": job and {name: value for name, value in job.items() if name != "losses"}}
        whole |= {"further_seeds": seeds}
        print_json(state.as_json() | whole)
        return
    print_line(f"{state.name}: {state.state}" + (f", {state.decision}" if state.decision else ""))
    if state.state == "closed":
        result = page_result(history)
        print_line(masked_line(result["sentence"] if result else "its result cannot be read", 2000))
    else:
        _print_now(state, job, builder)
    for decision in decisions:
        print_line(f"  gate {decision['stage'] or 'design'}.{decision['attempt']}: {decision['outcome']}")
    for reason in state.reasons:
        print_line(f"    - {masked_line(reason, 2000)}")
    print_line(f"spent {spent.spent_usd:.4f} USD, left {spent.left_usd:.4f} USD and {spent.left_hours * 60:.0f} min")
    if seeds:
        print_line(f"  {masked_line(seeds, 2000)}")
    for obligation in conditions:
        text = masked_line(obligation.condition.text, 500)
        print_line(f"  condition {obligation.id} before {obligation.condition.stage}: {obligation.state}: {text}")
    claims = [f"scorecard: {scorecard['summary']}; the report has the rows"] if scorecard else []
    print_indented((*acceptance_lines(acceptance), *claims), 500)
    if state.state == "waiting":
        print_line("it waits for a person")
        _print_next_steps(history, run)
    elif state.state == "paused":
        print_line(f"to continue: peergate resume {session_words(run)}")


def _print_programme(folders: list[Path], as_json: bool) -> None:
    # Imported here: one session needs none of it.
    from sessions.pages.acceptance.programme import programme_of

    if not folders:
        raise UserError("no session specified, and none exists", hint="peergate status RUN... --programme")
    added_up = programme_of(folders)
    if as_json:
        print_json(added_up.as_json())
        return
    print_indented(added_up.lines(), 500)


def _print_now(state: Overview, job: Mapping[str, Any] | None, builder: dict[str, Any] | None) -> None:
    if state.stage:
        print_line(f"stage {state.stage}, attempt {state.attempt}")
    if job is not None and job["total"]:
        print_line(masked_line(f"  {job_in_words(job)}", 500))
    if builder is not None:
        print_line(_in_words(builder))


def job_in_words(job: Mapping[str, Any]) -> str:
    """Return how far the running job is, with what it says of itself: untrusted words."""
    note = [
        f"{name} {value if isinstance(value, str) else format(value, '.4g')}" for name, value in job["note"].items()
    ]
    what = "witness" if job["witness"] else "job"
    return f"{what}: {job['done']} of {job['total']} {job['unit']}{''.join(f', {text}' for text in note)}"


def builder_status(history: History, budget: Budget) -> dict[str, Any] | None:
    """Return the newest phase of the builder, its last call and its spending; None before its first call or turn."""
    newest = history.newest(ToolCallEntry, TurnEntry)
    if newest is None:
        return None
    stage, attempt, phase = at = _phase(newest.body)
    calls = [entry for entry in history.of(ToolCallEntry) if _phase(entry.body) == at]
    results = {entry.body.call: entry.body.is_error for entry in history.of(ToolResultEntry)}
    last = calls[-1] if calls else None
    return {
        "stage": stage,
        "attempt": attempt,
        "phase": phase,
        "turns": sum(_phase(entry.body) == at for entry in history.of(TurnEntry)),
        "calls": len(calls),
        "last_call": last.body.tool if last else "",
        "outcome": {None: "under way", True: "refused", False: "done"}[results.get(last.key)] if last else "",
        "taken_usd": Accounts(history, budget).sum_committed("builder", "helper"),
        "most_usd": budget.builder_usd,
    }


def _phase(body: ToolCallEntry | TurnEntry) -> tuple[str, int, str]:
    return body.stage, body.attempt, body.phase


def print_summary(run: Path) -> None:
    """Print the state of a session after `start` or `resume`: the result, why, and how to check it."""
    state = overview(run)
    where = displayed_path(run)
    print_line()
    if state.state == "closed":
        data = json.loads(read_regular(run / REPORT_JSON))
        print_line(f"{state.name}: {masked_line(data['result'], 2000)}")
        for line in data["why"]:
            print_line(f"  {masked_line(line, 2000)}")
        if seeds := further_seeds(read_history(run)):
            print_line(f"  {masked_line(seeds, 2000)}")
        _print_remedies(data.get("remedies", []))
        print_line(f"report: {where}/{REPORT_MARKDOWN}")
        print_line(f"verify: peergate audit verify {where}")
        _print_model(data.get("left"), where, run, accepted=data["outcome"] == "approve")
        return
    print_line(f"{state.name}: {state.state}")
    for reason in state.reasons:
        print_line(f"  - {masked_line(reason, 2000)}")
    history = read_history(run)
    if waits_for_budget(history) is not None:
        print_line(f"interim report: {where}/{INTERIM}/report.md")
    if state.state == "waiting":
        if question(history) is not None:
            print_line(f"report so far: peergate report {session_words(run)}")
        _print_next_steps(history, run)


def _print_model(remaining: dict[str, Any] | None, where: str, run: Path, *, accepted: bool) -> None:
    """Print, as the last line of a closed session, where its model is and how to take it."""
    if remaining is None:
        return
    take = f"peergate get model {session_words(run)}"
    if accepted:
        print_line(f"model: {where}/{remaining['path']}; `{take}` copies it")
    else:
        print_line(f"model, not accepted: {where}/{remaining['path']}; `{take} --unaccepted` copies it")


def _print_next_steps(history: History, run: Path) -> None:
    """Print what a person can do, as the report says it, with the session named as it is from here."""
    named = session_words(run)
    print_line("what you can do:")
    request = question(history)
    if waits_for_verdict(history) is not None or request is None:
        print_ways_out(waiting_for(history, run)["answers"])
        return
    print_ways_out(answers_to(history, request, named))
    _print_remedies([remedy._asdict() for remedy in remedies(history)])


def print_ways_out(ways: Sequence[WayOut]) -> None:
    """Print commands, with the effect of each below it."""
    for way in ways:
        print_line(f"  {', then '.join(way.commands)}")
        print_line(f"      {way.effect}")


def _print_remedies(listed: list[dict[str, str]]) -> None:
    for remedy in listed:
        print_line(f"  against {remedy['check']}: {masked_line(remedy['remedy'], 500)}")


def _in_words(builder: dict[str, Any]) -> str:
    called = (
        f", last call {masked_line(builder['last_call'], 64)}: {builder['outcome']}" if builder["last_call"] else ""
    )
    phase = "builder, phase {phase} of {stage}.{attempt}: {turns} turns, {calls} calls".format(**builder)
    return f"{phase}{called}; {builder['taken_usd']:.4f} of {builder['most_usd']:g} USD"
