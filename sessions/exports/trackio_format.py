"""A session as a run in a folder of Trackio: `TRACKIO_DIR=FOLDER trackio show`."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from sessions.exports.tracked_run import PROJECT, TrackedRun


def write(run: TrackedRun, folder: Path, *, online: bool = False) -> None:
    """Write the run; nothing is sent."""
    # Read when the library is imported; the others would have it send the run to a server.
    os.environ["TRACKIO_DIR"] = str(folder.resolve())
    for name in [text for text in os.environ if text.startswith("TRACKIO_") and text != "TRACKIO_DIR"]:
        del os.environ[name]
    library: Any = import_module("trackio")
    gates = {f"gate {stage}.{attempt}": f"{outcome} ({who})" for stage, attempt, outcome, who in run.gates}
    config = run.config | run.state | gates
    library.init(project=PROJECT, name=run.name, config=config, embed=False, auto_log_gpu=False, auto_log_cpu=False)
    for name, values in run.curves.items():
        for step, value in enumerate(values, 1):
            library.log({name: value}, step=step)
    library.log(dict(run.metrics), step=0)
    library.finish()
