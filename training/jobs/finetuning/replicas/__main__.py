"""The process of one replica: ``python -P -m training.jobs.finetuning.replicas JOB_FOLDER NUMBER PROCESS ADDRESS``.

A coordinator, which is the process of the stage, starts it; a saved step to begin with may follow.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from specs.jobs.job_records import JobOrder
from specs.system.errors import ExitCode
from training.jobs.finetuning.replicas.outer_weights import trained_parameters
from training.jobs.finetuning.replicas.replica import Replica, SyncFailure
from training.jobs.finetuning.replicas.replica_files import (
    AGAIN,
    folder_of,
    of_replica,
    sha256_of,
    write_json,
)
from training.jobs.job import Job, refuse, starters
from training.jobs.saved_steps import train_from
from training.rules.finetuning.replica_rounds import Share


def main() -> None:
    """Train as one replica; end with 0, with AGAIN if a round is to be done again, else with the code of the fault."""
    job_folder, number, process, address, *resumes = sys.argv[1:]
    order = JobOrder.model_validate_json((Path(job_folder) / "order.json").read_bytes())
    _require_coordinator(Path(job_folder), order)
    code = ExitCode.DONE
    try:
        _train(Job(Path(job_folder), order), int(number), int(process), address, *map(Path, resumes))
    except SyncFailure as error:
        print(f"replica {number}: {error}; it repeats the round", flush=True)
        code = AGAIN
    sys.stdout.flush()
    sys.stderr.flush()
    # torchft's threads do not end by themselves.
    os._exit(int(code))


def _require_coordinator(folder: Path, order: JobOrder) -> None:
    """Exit with code 4 unless the process that started this one is that of the claimed stage."""
    try:
        owner = json.loads((folder / "claim" / "claim.json").read_bytes())
        started = owner["key"] == order.key and owner["pid"] in starters(os.getppid())
    except (OSError, ValueError, KeyError, TypeError):
        started = False
    if not started:
        refuse(f"{order.key}: replicas are started by the process of their stage only")


def _train(job: Job[Any], number: int, process: int, address: str, resumes: Path | None = None) -> None:
    import torch

    from training.jobs.finetuning.replicas.courses import COURSES

    arguments = job.parameters.distributed
    folder = folder_of(job.folder, number)
    torch.manual_seed(job.parameters.seed)
    made = COURSES[job.order.kind].build(of_replica(job, folder), Share(number, arguments.replicas))
    replica = Replica(number, process, arguments, address, folder)
    replica.attach(made.trainer, made.batches, resumes)
    with replica.rounds():
        train_from(made.trainer, resumes)
    replica.leave()
    _finish(folder, made, replica)


def _finish(folder: Path, made: Any, replica: Replica) -> None:
    """Write the trained weights and what was read back; the coordinator takes this as the end."""
    from safetensors.torch import save_file

    weights = trained_parameters(made.trainer.model)
    save_file({name: weight.detach().contiguous() for name, weight in weights.items()}, folder / "end.safetensors")
    effective = made.trainer.settings() | made.style.settings()
    facts = {"weights": sha256_of(weights), "effective": effective, "facts": made.end()}
    write_json(folder / "end.json", facts | {"synchronised": replica.settings()})


if __name__ == "__main__":
    main()
