"""`peergate diagnose`: why a training failed, from its checks, curves and records."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from sessions.commands.options import DEFAULT_RUNS, Json, Run, Runs, chosen
from sessions.commands.output import print_json, print_line
from sessions.diagnosis import curve_plots
from sessions.diagnosis.diagnosis import diagnose as diagnose_run
from sessions.diagnosis.pages import lines_of
from sessions.run.run_layout import require_run

app = typer.Typer()


@app.command()
def diagnose(
    run: Run = None,
    stage: Annotated[str | None, typer.Option("--stage", help="Only this stage that trains.")] = None,
    attempt: Annotated[int | None, typer.Option("--attempt", help="This attempt, not the newest.", min=1)] = None,
    plots: Annotated[Path | None, typer.Option("--plots", help="Draw the curves into this folder, as SVG.")] = None,
    runs: Runs = DEFAULT_RUNS,
    as_json: Json = False,
) -> None:
    """Say which class of cause binds in a training, with the evidence, and what to do next.

    The newest attempt of each stage that trains: data, optimisation or infrastructure, each detector's figure,
    threshold and rows, a chain of whys, and actions ranked by gain over effort. Nothing in the run is changed.
    """
    run = require_run(chosen(run, runs))
    found = diagnose_run(run, stage, attempt)
    drawn = (
        curve_plots.draw(plots, [curve_plots.Drawn(one.stage, one.attempt, one.curves, one.marks()) for one in found])
        if plots
        else []
    )
    if as_json:
        print_json({"run": str(run), "attempts": [one.as_json() for one in found], "plots": drawn})
        return
    if not found:
        print_line(f"no training was begun in {run}")
    columns = shutil.get_terminal_size().columns
    for one in found:
        for line in lines_of(one, columns):
            print_line(line)
        print_line()
    for name in drawn:
        print_line(f"drawn: {plots}/{name}", err=True)
