"""A session as event files that TensorBoard reads: `tensorboard --logdir FOLDER`."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from sessions.exports.tracked_run import TrackedRun


def write(run: TrackedRun, folder: Path, *, online: bool = False) -> None:
    """Write scalars, and gates, registration and state as texts, into a further event file."""
    library: Any = import_module("tensorboardX")
    place = folder / run.name
    # Files of one second have the same name otherwise.
    number = len(list(place.iterdir())) if place.is_dir() else 0
    with library.SummaryWriter(logdir=str(place), filename_suffix=f".{number}") as writer:
        for name, values in run.curves.items():
            for step, value in enumerate(values, 1):
                writer.add_scalar(name, value, step, walltime=run.began)
        for name, value in run.metrics.items():
            writer.add_scalar(name, value, 0, walltime=run.began)
        rows = [f"| {stage} | {attempt} | {outcome} | {reviewer} |" for stage, attempt, outcome, reviewer in run.gates]
        table = "\n".join(("| stage | attempt | decision | reviewer |", "|---|---|---|---|", *rows))
        texts = {"gates": table, "session": _block(run.config), "state": _block(run.state)}
        for name, text in texts.items():
            writer.add_text(name, text, number, walltime=run.began)


def _block(value: dict[str, Any]) -> str:
    return f"```\n{json.dumps(value, indent=1)}\n```"
