"""The files through which a coordinator and its replicas know of each other, below ``replicas/NUMBER`` of a job."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from specs.stages.finetuning.distributed import ReplicaRound
from training.jobs.job import Job
from training.jobs.row_files import write_durably
from training.jobs.saved_steps import FOLDER, newest_whole, step_of

FOLDERS = "replicas"
OUTER = "outer.pt"
"""In a saved step: the state of the outer optimizer."""
MASTERS = "masters.safetensors"
"""In a saved step: the weights in float32, where the trained ones are in another type."""
_LOOKS = 10
"""So often the newest state is looked up that is gone before it is copied."""
AGAIN = 75
"""The exit code of a replica whose synchronisation was not committed: it is to begin the round again."""


class RoundRecord(NamedTuple):
    """A round of a replica, with the log lines of its steps and what their batches held."""

    row: ReplicaRound
    steps: list[dict[str, Any]]
    batches: dict[str, Any]


def folder_of(job_folder: Path, replica: int) -> Path:
    """Return the folder of a replica."""
    return job_folder / FOLDERS / str(replica)


def of_replica(job: Job[Any], folder: Path) -> Job[Any]:
    """Return the job as one replica carries it out: a plain training in its own folder."""
    mine: Job[Any] = Job(job.folder, job.order)
    arguments = job.parameters.distributed
    mine.parameters = job.parameters.model_copy(update={"distributed": None, "snapshot_steps": arguments.sync_every})
    mine.folder, mine.out = folder, folder / "out"
    mine.out.mkdir(parents=True, exist_ok=True)
    return mine


def own_state(state: Path, folder: Path) -> Path:
    """Return a saved step as one of the replica's own: a copy if another replica saved it.

    One that the replica was ended in the middle of saving goes.
    """
    target = folder / FOLDER / state.name
    if target.resolve() != state.resolve():
        # Of one name: what a copy left that failed goes with the next.
        copy = folder / FOLDER / "copy"
        for old in (copy, target):
            shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(state, copy)
        copy.rename(target)
    return target


def sha256_of(weights: Mapping[str, Any]) -> str:
    """Return the digest of all weights, by their names."""
    import torch

    result = hashlib.sha256()
    for name, value in sorted(weights.items()):
        result.update(f"{name} {tuple(value.shape)} {value.dtype}\n".encode())
        result.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return result.hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Write a file whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, json.dumps(value).encode())


def write_round(folder: Path, element: RoundRecord) -> None:
    """Keep a round that was synchronised."""
    value = {"row": element.row.model_dump(mode="json"), "steps": element.steps, "seen": element.batches}
    write_json(folder / "rounds" / f"{element.row.sync}.json", value)


def make_arrival_path(folder: Path, process: int, sync: int) -> Path:
    """Return the file that says that a process of a replica is ready for a synchronisation."""
    (folder / "arrived").mkdir(parents=True, exist_ok=True)
    return folder / "arrived" / f"{process}.{sync}"


def rounds_in(folder: Path, after: int = 0) -> list[RoundRecord]:
    """Return the rounds of a replica after a synchronisation, in order."""
    rounds: list[RoundRecord] = []
    for path in list_numbered_files(folder / "rounds"):
        if int(path.stem) > after:
            record = json.loads(path.read_text(encoding="utf-8"))
            rounds.append(RoundRecord(ReplicaRound.model_validate(record["row"]), record["steps"], record["seen"]))
    return sorted(rounds, key=lambda value: value.row.sync)


def list_numbered_files(folder: Path) -> list[Path]:
    """Return the numbered files of a folder, without files that are still being written."""
    return sorted(folder.glob("[0-9]*.json"))


def newest_state(job_folder: Path, replica: int, replicas: int) -> Path | None:
    """Return the newest saved synchronisation of any replica; of equally new ones that of the replica itself."""
    own_last = [*(other for other in range(replicas) if other != replica), replica]
    paths = [newest_whole(folder_of(job_folder, other) / FOLDER) for other in own_last]
    whole = [path for path in paths if path is not None and (path / OUTER).is_file()]
    return max(reversed(whole), key=step_of, default=None)


def own_newest(job_folder: Path, replica: int, replicas: int) -> Path | None:
    """Return the newest saved synchronisation as one of the replica's own.

    The others go on meanwhile and drop what is old: then there is a newer one.
    """
    looks = 0
    while (state := newest_state(job_folder, replica, replicas)) is not None:
        try:
            return own_state(state, folder_of(job_folder, replica))
        except (FileNotFoundError, shutil.Error):
            looks += 1
            if looks == _LOOKS:
                raise
    return None
