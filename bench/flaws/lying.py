"""Jobs that lie: they run in this process, and an operator changes what one of them reads, writes and states."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from bench.flaws.operator import Operator
from specs.jobs.job_records import ExitRecord, JobOrder
from specs.system.digests import digest_file, digest_path
from testing.fixtures import small_pipeline
from testing.fixtures.small_pipeline import InProcessLauncher
from testing.fixtures.tiny_training import write_lines
from training.jobs import job as entry
from training.jobs.job import Job, StageResult

PATCHES = ExitStack()
"""What an operator changes in this process, for a job and its witness."""


class Machine(InProcessLauncher):
    """Runs jobs in this process; a job that breaks ends with code 1, as in a separate process."""

    def __init__(self, operator: Operator | None) -> None:
        super().__init__()
        self._operator = operator

    def start(self, folder: Path) -> None:
        """Run a job to its end, good or bad."""
        order = JobOrder.model_validate_json((folder / "order.json").read_bytes())
        try:
            super().start(folder)
        except Exception as error:
            (folder / "log.txt").write_text(f"{type(error).__name__}: {error}\n", encoding="utf-8")
            now, log = round(time.time(), 3), digest_file(folder / "log.txt")
            record = ExitRecord(key=order.key, code=1, reason="exited", started=now, ended=now, host="here", log=log)
            (folder / "exit.json").write_bytes(record.canonical())
            return
        if self._operator and self._operator.later and lies(order, self._operator):
            self._operator.later(Job(folder, order))


def lies(order: JobOrder, operator: Operator | None) -> bool:
    """Return whether this job lies; witnesses are honest."""
    return operator is not None and not order.challenge and order.grant.stage == operator.stage


@contextmanager
def lying(run: Path, operator: Operator | None) -> Generator[None]:
    """Have the job of the operator's stage lie; it states the granted settings whatever it worked on."""
    honest: Any = entry._write_manifest  # pyright: ignore[reportPrivateUsage]
    watched: Any = small_pipeline._Watched  # pyright: ignore[reportPrivateUsage]

    def begin(folder: Path, order: JobOrder, midway: Callable[[Path], None]) -> Job:
        job = watched(folder, order, midway)
        if operator and order.grant.stage != operator.stage:
            PATCHES.close()
        if operator and operator.swap and lies(order, operator):
            operator.swap(job)
        return job

    def write(job: Job, done: StageResult, *rest: Any) -> None:
        if operator and lies(job.order, operator):
            order = JobOrder.model_validate_json((job.folder / "order.json").read_bytes())
            granted = {name: value for name, value in order.parameters.items() if name in done.effective}
            done = replace(done, effective=done.effective | granted)
            _plant(job, operator, run)
            done = replace(done, **operator.manifest)
            job = Job(job.folder, order)
        honest(job, done, *rest)

    with (
        PATCHES,
        mock.patch.object(entry, "_write_manifest", write),
        mock.patch.object(small_pipeline, "_Watched", begin),
    ):
        yield


class PlantFailure(BaseException):
    """An operator changed nothing: its session is healthy, and shows nothing."""


def other_parameters(job: Job, **others: Any) -> None:
    """Have a job work with other parameters than its order holds; it does not compare them with each other."""
    job.parameters = job.parameters.model_copy(update=others)
    job.order = job.order.model_copy(update={"parameters": job.order.parameters | others})


def _plant(job: Job, operator: Operator, run: Path) -> None:
    before = _outputs(job)
    path = job.out / f"{operator.output}.jsonl"
    if operator.lie:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        operator.lie(rows, run)
        write_lines(path, rows)
    if operator.spoil:
        operator.spoil(job)
    if operator.weights:
        shake(job.out / "checkpoint" / "model.safetensors", operator.weights)
    changes = operator.lie or operator.spoil or operator.weights
    if changes and _outputs(job) == before:
        raise PlantFailure(f"{operator.name} changed nothing")


def _outputs(job: Job) -> dict[str, Any]:
    """Return what a job left, rows as what they say: another way of writing them is not a change."""
    return {
        path.name: [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if path.suffix == ".jsonl"
        else digest_path(path)
        for path in sorted(job.out.iterdir())
    }


def shake(path: Path, share: float) -> None:
    """Move every weight by noise of a share of its tensor's spread."""
    import torch
    from safetensors.torch import load_file, save_file

    drawn = torch.Generator().manual_seed(0)
    moved = {
        name: tensor + share * tensor.std() * torch.randn(tensor.shape, generator=drawn)
        for name, tensor in load_file(path).items()
    }
    save_file(moved, path, metadata={"format": "pt"})
