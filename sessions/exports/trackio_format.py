"""A session as a run in a folder of Trackio: `TRACKIO_DIR=FOLDER trackio show`."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from sessions.exports.formats import Source
from sessions.exports.tracked_run import PROJECT, tracked


def write(source: Source, folder: Path) -> list[str]:
    """Write the run; nothing is sent."""
    run = tracked(source)
    # Read when the library is imported; the others would have it send the run to a server.
    os.environ["TRACKIO_DIR"] = str(folder.resolve())
    for name in [one for one in os.environ if one.startswith("TRACKIO_") and one != "TRACKIO_DIR"]:
        del os.environ[name]
    library: Any = import_module("trackio")
    gates = {f"gate {stage}.{attempt}": f"{outcome} ({who})" for stage, attempt, outcome, who in run.gates}
    library.init(
        project=PROJECT, name=run.name, config=run.config | gates, embed=False, auto_log_gpu=False, auto_log_cpu=False
    )
    for name, values in run.curves.items():
        for step, value in enumerate(values, 1):
            library.log({name: value}, step=step)
    library.log(dict(run.metrics), step=0)
    library.finish()
    return run.told()
