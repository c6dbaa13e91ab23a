"""`peergate prune`."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from sessions.commands.options import DEFAULT_RUNS, By, Json, RequiredRun, Runs, chosen
from sessions.commands.output import print_json, print_line, say
from sessions.run.pruning import Prunable, prunable
from sessions.run.pruning import prune as carry_out
from specs.system.errors import UserError
from specs.system.text import size_in_words

app = typer.Typer()


@app.command()
def prune(
    run: RequiredRun,
    keep: Annotated[
        list[str] | None, typer.Option("--keep", help="Keep the weights of this stage; can be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    by: By = None,
    runs: Runs = DEFAULT_RUNS,
    as_json: Json = False,
) -> None:
    """Delete the weights and snapshots of a closed session; digests, rows, records and reports stay.

    It first lists what it deletes and what no witness can recompute afterwards. A signed entry of the trail names it.
    Files outside the run folder, such as the model it started from, stay. Repeat it after an interruption. Exit codes:
    0 deleted, or nothing to delete; 2 no such session, it has not ended, or no one agreed; 4 a process has the session;
    5 the trail or the weights differ from the record, and nothing was deleted.
    """
    folder = chosen(run, runs)
    prunable_result = prunable(folder, keep or ())
    if prunable_result.paths and not dry_run:
        if not yes:
            _print_prunable(prunable_result, say)
            _ask()
        prunable_result = carry_out(folder, by or getpass.getuser(), keep or (), say)
    if as_json:
        print_json(_as_data(folder, prunable_result, dry_run))
    elif dry_run or yes or not prunable_result.paths:
        _print_prunable(prunable_result, print_line)
    if prunable_result.paths and not as_json:
        print_line(f"{size_in_words(prunable_result.frees)} {'would be freed' if dry_run else 'freed'}")


def _ask() -> None:
    """Return if a person agrees; raises UserError if not, or without a person to ask."""
    if not sys.stdin.isatty():
        raise UserError("nothing was deleted: this is not an interactive terminal", hint="--yes deletes without asking")
    say("delete this? Copies elsewhere are the only way back [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UserError("nothing was deleted")


def _print_prunable(prunable: Prunable, write: Any) -> None:
    for pruned_weights in prunable.weights:
        write(f"{pruned_weights.path}: {size_in_words(pruned_weights.bytes)}, {pruned_weights.digest}")
    for path in prunable.leftovers:
        write(f"{path}: saved steps of an interrupted training")
    for path in (*(pruned_weights.path for pruned_weights in prunable.unfinished), *prunable.aside):
        write(f"{path}: an earlier prune was interrupted and did not delete it")
    for line in prunable.loses:
        write(f"afterwards: {line}")
    if prunable.gone:
        write(f"pruned before: {', '.join(pruned_weights.path for pruned_weights in prunable.gone)}")
    if not prunable.paths:
        write("nothing to delete")


def _as_data(folder: Path, prunable: Prunable, dry_run: bool) -> dict[str, Any]:
    return {
        "path": str(folder),
        "dry_run": dry_run,
        "weights": [pruned_weights.model_dump(mode="json") for pruned_weights in prunable.weights],
        "leftovers": list(prunable.leftovers),
        "unfinished": [*(pruned_weights.path for pruned_weights in prunable.unfinished), *prunable.aside],
        "pruned_before": [pruned_weights.model_dump(mode="json") for pruned_weights in prunable.gone],
        "not_witnessed_again": list(prunable.loses),
        "freed_bytes": prunable.frees,
    }
