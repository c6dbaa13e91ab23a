"""A session as a run of Weights & Biases: offline, for `wandb sync FOLDER/wandb/offline-run-*`, or sent at once."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from sessions.exports.tracked_run import PROJECT, TrackedRun


def write(run: TrackedRun, folder: Path, *, online: bool = False) -> None:
    """Write the run, and nothing of this machine; ``online`` adds it to the run on the server."""
    wandb: Any = import_module("wandb")

    settings = wandb.Settings(
        console="off", silent=True, disable_git=True, x_disable_stats=True, x_disable_meta=True, host="-"
    )
    arguments: dict[str, Any] = {"mode": "online", "resume": "allow"} if online else {"mode": "offline"}
    made = wandb.init(project=PROJECT, name=run.name, id=run.id, dir=str(folder), settings=settings, **arguments)
    made.config.update(run.config | run.state, allow_val_change=True)
    for name, values in run.curves.items():
        # Unescaped, a dot leads into another metric, whose steps are all 0.
        escaped = name.replace(".", r"\.")
        made.define_metric(escaped, step_metric=f"{escaped} step")
        for step, value in enumerate(values, 1):
            made.log({name: value, f"{name} step": step})
    made.summary.update(dict(run.metrics))
    columns = ["stage", "attempt", "decision", "reviewer"]
    made.log({"gates": wandb.Table(columns=columns, data=[list(gate) for gate in run.gates])})
    made.finish()
