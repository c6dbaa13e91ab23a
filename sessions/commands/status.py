"""`peergate status | list | report | graph`: reading only."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from reviews.gate.conditions import obligations
from reviews.gate.human_answers import waits_for_budget
from reviews.trail.envelope import Recorded
from reviews.trail.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.commands.options import DEFAULT_RUNS, Json, Name, Runs
from sessions.commands.output import print_json, print_line, print_table
from sessions.money import ledger
from sessions.report.builder_status import Doing, doing
from sessions.report.overview import overview, waits_for_verdict
from sessions.report.report import INTERIM, REPORT_JSON, REPORT_MARKDOWN, told_so_far
from sessions.report.session_list import everywhere, listed
from sessions.report.waiting_report import question, result_of
from sessions.run.private_files import warn_of_readers
from sessions.run.run_layout import STORE, TRAIL, require_run
from sessions.terminal import masked_line
from specs import markdown
from specs.errors import EvidenceMissing

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
    found = everywhere(runs) if all_of_database else listed(runs)
    if as_json:
        print_json({"sessions": [one.as_json() for one in found]})
        return
    if not found:
        print_line(f"no sessions in {runs}", err=True)
        return
    rows = [(one.name, one.state, one.decision or "-", one.stage or "-", one.started or "-") for one in found]
    names = ("name", "state", "decision", "stage", "started")
    if all_of_database:
        names, rows = (*names, "place"), [(*row, str(one.path)) for row, one in zip(rows, found, strict=True)]
    print_table(names, rows)


@app.command()
def status(name: Name, runs: Runs = DEFAULT_RUNS, as_json: Json = False) -> None:
    """Show a session's stage, decisions, money and time."""
    run = require_run(runs / name).resolve()
    warn_of_readers([run])
    state = overview(run)
    entries = read_entries(run / TRAIL)
    spent = ledger.balance_of(entries, _budget(run))
    money = {
        "spent_usd": round(spent.spent_usd, 6),
        "reserved_usd": round(spent.reserved_usd, 6),
        "left_usd": round(spent.left_usd, 6),
        "hours": round(spent.hours, 4),
        "left_hours": round(spent.left_hours, 4),
    }
    decisions = [
        {"stage": one.body.get("stage"), "attempt": one.body.get("attempt"), "outcome": one.body["outcome"]}
        for one in entries
        if one.entry.kind == "decision"
    ]
    at_work = doing(entries, _budget(run))
    if as_json:
        conditions = [
            {"id": one.id, "stage": one.condition.stage, "text": one.condition.text, "state": one.state}
            for one in obligations(entries, time.time_ns())
        ]
        builder = at_work._asdict() if at_work else None
        whole = {"budget": money, "decisions": decisions, "conditions": conditions, "builder": builder}
        print_json(state.as_json() | whole)
        return
    print_line(f"{state.name}: {state.state}" + (f", {state.decision}" if state.decision else ""))
    if state.stage:
        print_line(f"stage {state.stage}, attempt {state.attempt}")
    if at_work is not None:
        print_line(_builder(at_work))
    for one in decisions:
        print_line(f"  gate {one['stage'] or 'design'}.{one['attempt']}: {one['outcome']}")
    for reason in state.reasons:
        print_line(f"    - {masked_line(reason, 2000)}")
    print_line(f"spent {spent.spent_usd:.4f} USD, left {spent.left_usd:.4f} USD and {spent.left_hours * 60:.0f} min")
    for one in obligations(entries, time.time_ns()):
        print_line(
            f"  condition {one.id} before {one.condition.stage}: {one.state}: {masked_line(one.condition.text, 500)}"
        )
    if state.state == "waiting":
        print_line(f"it waits for a person: {_how_to_answer(entries, name, runs)}")
    elif state.state == "paused":
        print_line(f"to continue: peergate resume {name}")


@app.command()
def report(name: Name, runs: Runs = DEFAULT_RUNS, as_json: Json = False) -> None:
    """Print the report of a session.

    Of a session that waits for a person it is the report so far.
    """
    run = require_run(runs / name)
    path = run / (REPORT_JSON if as_json else REPORT_MARKDOWN)
    if not path.is_file() and (asked := question(read_entries(run / TRAIL))) is not None:
        print_line(result_of(asked), err=True)
        data, text = told_so_far(run, TRAIL, STORE)
        if as_json:
            data.pop("schema_version", None)
            print_json(data | {"retracted": []})
        else:
            sys.stdout.write(text)
        return
    if not path.is_file():
        raise EvidenceMissing(
            f"session '{name}' has no report yet", where=str(run), hint=f"`peergate status {name}` shows its state"
        )
    # A report is not written again: what was taken back later is told above it.
    after = [one for one in read_entries(run / TRAIL) if one.entry.kind == "retraction"]
    taken_back = (
        [line for one in after for line in one.body["reasons"]] if overview(run).decision == "retracted" else []
    )
    if as_json:
        data: dict[str, Any] = json.loads(path.read_bytes())
        data.pop("schema_version", None)
        print_json(data | {"retracted": taken_back})
    else:
        for line in taken_back:
            print_line(f"> **Taken back.** {markdown.line(line, 2000)}")
            print_line()
        sys.stdout.write(path.read_text(encoding="utf-8"))


@app.command()
def graph() -> None:
    """Print the session graph as Mermaid."""
    from sessions.graph import build_graph

    sys.stdout.write(build_graph(None).get_graph().draw_mermaid() + "\n")


def print_summary(run: Path) -> None:
    """Print the state of a session after `start` or `resume`: the result, why, and how to check it."""
    state = overview(run)
    where = _shown(run)
    if state.state == "closed":
        data = json.loads((run / REPORT_JSON).read_bytes())
        print_line()
        print_line(f"{state.name}: {masked_line(data['result'], 2000)}")
        for line in data["why"]:
            print_line(f"  {masked_line(line, 2000)}")
        print_line(f"report: {where}/{REPORT_MARKDOWN}")
        print_line(f"verify: peergate audit verify {where}")
        return
    print_line()
    print_line(f"{state.name}: {state.state}")
    for reason in state.reasons:
        print_line(f"  - {masked_line(reason, 2000)}")
    if waits_for_budget(read_entries(run / TRAIL)) is not None:
        print_line(f"interim report: {where}/{INTERIM}/report.md")
    if state.state == "waiting":
        if question(read_entries(run / TRAIL)) is not None:
            print_line(f"report so far: peergate report {state.name}{_below(run.parent)}")
        print_line(f"answer: {_how_to_answer(read_entries(run / TRAIL), state.name, run.parent)}")


def _how_to_answer(entries: list[Recorded], name: str, runs: Path) -> str:
    run = _shown(runs.resolve() / name)
    if waits_for_verdict(entries) is not None:
        return f"peergate review show {run}, then peergate review give {run} --file VERDICT.json"
    where = _below(runs)
    if waits_for_budget(entries) is not None:
        amend = f"peergate amend {name} SPEC{where} --reason ..., then peergate resume {name}{where}"
        return f"{amend}; or peergate resume {name}{where} --answer stop --reason ..."
    return f"peergate resume {name}{where} --answer retry|approve|stop --reason ..."


def _below(runs: Path) -> str:
    """Return the option that names the folder of runs; nothing for the one that is meant without it."""
    return "" if runs.resolve() == Path("runs").resolve() else f" --runs {_shown(runs.resolve())}"


def _builder(one: Doing) -> str:
    called = f", last call {masked_line(one.last_call, 64)}: {one.outcome}" if one.last_call else ""
    counts = f"{one.turns} turns, {one.calls} calls{called}"
    return f"builder, phase {one.phase} of {one.stage}.{one.attempt}: {counts}; " + (
        f"{one.taken_usd:.4f} of {one.most_usd:g} USD"
    )


def _shown(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _budget(run: Path) -> Any:
    from reviews.evidence.gather import registered_spec

    resolved, _ = registered_spec(read_entries(run / TRAIL), Store(run / STORE))
    return resolved.spec.budget
