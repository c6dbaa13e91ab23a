"""`peergate report | diagnose | transcript | graph`."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from sessions.commands.named_place import session_at
from sessions.commands.options import DEFAULT_RUNS, Json, Run, Runs, chosen
from sessions.commands.output import print_json, print_line
from sessions.pages.diagnosis import curve_plots
from sessions.pages.diagnosis.diagnosis import diagnose as diagnose_run
from sessions.pages.diagnosis.diagnosis import nothing_begun
from sessions.pages.diagnosis.pages import lines_of as diagnosis_lines
from sessions.pages.overview import overview
from sessions.pages.report.report import render_waiting_report
from sessions.pages.report.terminal_report import print_report
from sessions.pages.report.transcript import Transcript, lines_of
from sessions.pages.result import further_seeds, question, result_of
from sessions.run.run_history import read_history
from sessions.run.run_layout import REPORT_JSON, REPORT_MARKDOWN, STORE, TRAIL, require_run
from specs.session_words import session_words
from specs.system import markdown
from specs.system.errors import EvidenceMissing, UserError
from specs.system.regular_files import read_regular
from specs.trail.gate_bodies import RetractionEntry

app = typer.Typer()


@app.command()
def report(run: Run = None, runs: Runs = DEFAULT_RUNS, as_json: Json = False) -> None:
    """Print the report of a session.

    Prints text that fits the terminal, or Markdown into a file or pipe. For a session that waits for a person it prints
    the report so far.
    """
    run = require_run(chosen(run, runs))
    path = run / (REPORT_JSON if as_json else REPORT_MARKDOWN)
    history, data, taken_back = read_history(run), dict[str, Any](), list[str]()
    if path.is_file():
        text = read_regular(path).decode("utf-8")
        # A report is not written again: later retractions, and further seeds, are shown above it.
        if overview(run).decision == "retracted":
            taken_back = [line for entry in history.of(RetractionEntry) for line in entry.body.reasons]
    elif (request := question(history)) is not None:
        print_line(result_of(request), err=True)
        data, text = render_waiting_report(run, TRAIL, STORE)
    else:
        hint = f"`peergate status {session_words(run)}` shows its state"
        raise EvidenceMissing(f"session '{run.resolve().name}' has no report yet", where=str(run), hint=hint)
    seeds = further_seeds(history)
    if as_json:
        data = data or json.loads(text)
        data.pop("schema_version", None)
        print_json(data | {"retracted": taken_back, "further_seeds": seeds})
        return
    for what, line in (*(("Taken back.", line) for line in taken_back), *([("Seeds:", seeds)] if seeds else [])):
        print_line(f"> **{what}** {markdown.line(line, 2000)}")
        print_line()
    if sys.stdout.isatty():
        print_report(text)
    else:
        sys.stdout.write(text)


@app.command()
def diagnose(
    run: Run = None,
    stage: Annotated[str | None, typer.Option("--stage", help="Only this stage that trains.")] = None,
    attempt: Annotated[int | None, typer.Option("--attempt", help="This attempt, not the newest.", min=1)] = None,
    plots: Annotated[Path | None, typer.Option("--plots", help="Draw the curves into this folder, as SVG.")] = None,
    runs: Runs = DEFAULT_RUNS,
    as_json: Json = False,
) -> None:
    """Print what limits a training, with the evidence, and what to do next.

    Looks at the newest attempt of each stage that trains. Names the class of the cause (data, optimisation or
    infrastructure), each detector's figure, threshold and rows, a chain of whys, and actions ranked by gain over
    effort. Nothing in the run is changed.
    """
    run = require_run(chosen(run, runs))
    attempts = diagnose_run(run, stage, attempt)
    curves = [
        curve_plots.AttemptCurves(diagnosis.stage, diagnosis.attempt, diagnosis.curves, diagnosis.marks())
        for diagnosis in attempts
    ]
    drawn = curve_plots.draw(plots, curves) if plots else []
    if as_json:
        print_json({"run": str(run), "attempts": [diagnosis.as_json() for diagnosis in attempts], "plots": drawn})
        return
    if not attempts:
        print_line(nothing_begun(run))
    columns = shutil.get_terminal_size().columns
    for diagnosis in attempts:
        for line in diagnosis_lines(diagnosis, columns):
            print_line(line)
        print_line()
    for name in drawn:
        print_line(f"drawn: {plots}/{name}", err=True)


@app.command()
def transcript(
    run: Run = None,
    attempt: Annotated[
        str | None, typer.Argument(metavar="STAGE[.ATTEMPT]", help="Only this stage, or this attempt of it.")
    ] = None,
    runs: Runs = DEFAULT_RUNS,
    as_json: Json = False,
) -> None:
    """Show what the builder said and did, and what the gate answered.

    Turns, calls, their results and costs, attempt by attempt.
    """
    place = session_at(run, runs)
    attempts = list(Transcript(place.store).attempts(place.history()))
    if attempt is not None:
        stage, number = _place(attempt)
        chosen = [attempt for attempt in attempts if attempt.stage == stage and number in (None, attempt.attempt)]
        if not chosen:
            there = ", ".join(f"{attempt.stage}.{attempt.attempt}" for attempt in attempts) or "nothing yet"
            raise UserError(f"no record of '{attempt}'", where=str(place.folder), hint=f"recorded: {there}")
        attempts = chosen
    if as_json:
        print_json({"session": place.folder.resolve().name, "attempts": [attempt.as_json() for attempt in attempts]})
        return
    for current_attempt in attempts:
        for line in lines_of(current_attempt):
            print_line(line)
        print_line()


@app.command()
def graph() -> None:
    """Print the session graph as Mermaid."""
    from sessions.graph import build_graph

    sys.stdout.write(build_graph(None).get_graph().draw_mermaid() + "\n")


def _place(named: str) -> tuple[str, int | None]:
    match = re.fullmatch(r"([a-z][a-z0-9_]*)(?:\.([0-9]{1,4}))?", named)
    if match is None:
        raise UserError(f"invalid attempt '{named}'", hint="expected STAGE or STAGE.ATTEMPT, for example sample.2")
    return match[1], int(match[2]) if match[2] else None
