"""The process of a stage whose kind another distribution brings: it finds the kind by its order, and does its work."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from pydantic import ValidationError

from specs.job_records import JobOrder
from specs.stages.registry import STAGE_KINDS
from training.jobs.job import Done, Job, refuse, run_stage


def work(job: Job) -> Done:
    """Do what the order's kind says; its module is imported only now, when the grant has been compared."""
    module, _, function = STAGE_KINDS[job.order.kind].job.partition(":")
    return getattr(import_module(module), function)(job)


def main() -> None:
    """Carry out the order in the job folder that is the only argument; leaves the process as every stage does."""
    name = ""
    if len(sys.argv) == 2:
        try:
            name = JobOrder.model_validate_json((Path(sys.argv[1]) / "order.json").read_bytes()).kind
        except (OSError, ValidationError) as error:
            refuse(f"no readable order.json in {sys.argv[1]}: {str(error).splitlines()[0]}")
    run_stage(name, work, uses_torch=not name or STAGE_KINDS[name].loads_model)


if __name__ == "__main__":
    main()
