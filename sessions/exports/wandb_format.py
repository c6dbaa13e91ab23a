"""A session as an offline run of Weights & Biases: `wandb sync FOLDER/wandb/offline-run-*` sends it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from sessions.exports.formats import Source
from sessions.exports.tracked_run import PROJECT, tracked


def write(source: Source, folder: Path) -> list[str]:
    """Write the run; nothing is sent, and nothing of this machine is recorded."""
    run = tracked(source)
    wandb: Any = import_module("wandb")

    settings = wandb.Settings(
        console="off", silent=True, disable_git=True, x_disable_stats=True, x_disable_meta=True, host="-"
    )
    made = wandb.init(
        project=PROJECT, name=run.name, config=run.config, dir=str(folder), mode="offline", settings=settings
    )
    for name, values in run.curves.items():
        made.define_metric(name, step_metric=f"{name} step")
        for step, value in enumerate(values, 1):
            made.log({name: value, f"{name} step": step})
    made.summary.update(dict(run.metrics))
    columns = ["stage", "attempt", "decision", "reviewer"]
    made.log({"gates": wandb.Table(columns=columns, data=[list(one) for one in run.gates])})
    made.finish()
    return run.told()
