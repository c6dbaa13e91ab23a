"""A task of inspect_ai as a job, with the library in its own environment."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from sessions.jobs.benchmarks import environment
from sessions.jobs.benchmarks.served_task import Harness, require_script, serve
from specs.stages.base.artifacts import Item
from specs.stages.evaluation.parameters import InspectParameters
from specs.system.confinement import bubblewrap
from specs.system.errors import BlockedError
from training.jobs.evaluation.benchmark_rows import write_items
from training.jobs.job import Job, StageResult, refuse
from training.rules.evaluation.inspect_log import NAME

_DRIVER = Path(__file__).with_name("inspect_interpreter.py")


def inspect(job: Job[InspectParameters]) -> StageResult:
    """Write ``rows`` and ``log``; ends the process as :func:`serve`."""
    parameters, script = job.parameters, require_script(job)
    try:
        library = environment.find()
    except BlockedError as error:
        refuse(f"{job.order.key}: {error}")
    return serve(
        job,
        Harness(
            name="inspect_ai",
            library=library,
            host=bubblewrap.this_host(library.python, library.prefixes),
            driver=_DRIVER,
            write_items=write_items,
            settings={
                "task": parameters.task,
                "args": parameters.args,
                "score": parameters.score,
                "epochs": parameters.samples_per_item,
            },
            script=script,
            keep_log=_keep_log,
        ),
    )


def _keep_log(path: Path, log: Path, _: Sequence[Item]) -> None:
    """Keep the log of all that the sandbox left."""
    matching_path = path / NAME
    if not matching_path.is_file():
        raise ValueError("the task left no log")
    matching_path.rename(log)
    shutil.rmtree(path)
