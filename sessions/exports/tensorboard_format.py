"""A session as event files that TensorBoard reads: `tensorboard --logdir FOLDER`."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from sessions.exports.formats import Source
from sessions.exports.tracked_run import tracked


def write(source: Source, folder: Path) -> list[str]:
    """Write scalars, and gates and registration as texts."""
    run = tracked(source)
    library: Any = import_module("tensorboardX")
    with library.SummaryWriter(logdir=str(folder / run.name)) as writer:
        for name, values in run.curves.items():
            for step, value in enumerate(values, 1):
                writer.add_scalar(name, value, step, walltime=run.began)
        for name, value in run.metrics.items():
            writer.add_scalar(name, value, 0, walltime=run.began)
        rows = [f"| {stage} | {attempt} | {outcome} | {reviewer} |" for stage, attempt, outcome, reviewer in run.gates]
        table = "\n".join(("| stage | attempt | decision | reviewer |", "|---|---|---|---|", *rows))
        writer.add_text("gates", table, 0, walltime=run.began)
        writer.add_text("session", f"```\n{json.dumps(run.config, indent=1)}\n```", 0, walltime=run.began)
    return run.told()
