"""Whole training steps, from which the next attempt resumes."""

from __future__ import annotations

import json
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from specs.jobs.job_records import JobOrder, ResumeStep
from specs.system.digests import digest_path
from training.compat.transformers_internals import load_weights
from training.jobs.row_files import write_durably

SNAPSHOTS = "snapshots"
"""The output with the saved steps from which a witness replays."""
_MARK = "whole.json"

_STATE = "trainer_state.json"
_BEST = "best"
"""The folder of a saved step with the weights of the best reading so far, where those are of an earlier step."""
_NOT_KEPT = ("training_args.bin", "README.md", "rollouts.jsonl", _MARK, _BEST)
_NOT_WEIGHTS = (*_NOT_KEPT, _STATE, "optimizer.pt", "scheduler.pt", "rng_state*.pth")


def train(trainer: Any, folder: Path) -> None:
    """Train from the beginning, or from the newest whole checkpoint in the trainer's folder."""
    train_from(trainer, newest_whole(folder))


def train_from(trainer: Any, newest: Path | None) -> None:
    """Train from a saved step, or from the beginning."""
    if newest is None:
        trainer.train()
        return
    trainer.resumed_from = step_of(newest)
    _load_adapters_as_saved(trainer)
    trainer.train(resume_from_checkpoint=str(newest))


def _load_adapters_as_saved(trainer: Any) -> None:
    if hasattr(trainer.model, "peft_config"):
        # peft would make adapters of bfloat16, which those over weights of 4 bits are, float32 from here on.
        trainer.model.load_adapter = partial(trainer.model.load_adapter, autocast_adapter_dtype=False)


def carry_best(saved: Path, best: int) -> None:
    """Link the weights of the best reading into a newly saved step, for an attempt that resumes from it."""
    if step_of(saved) != best:
        (saved / _BEST).mkdir(exist_ok=True)
        keep(_best_of(saved.parent, best), saved / _BEST, _NOT_WEIGHTS)


def restore_best(trainer: Any, folder: Path, best: int) -> None:
    """Give a trainer the weights of the best reading, which a saved step in ``folder`` holds."""
    if trainer.state.global_step != best:
        _load_adapters_as_saved(trainer)
        load_weights(trainer, _best_of(folder, best))


def _best_of(folder: Path, best: int) -> Path:
    name = f"checkpoint-{best}"
    if _whole(folder / name):
        return folder / name
    for path in folder.glob(f"checkpoint-*/{_BEST}/{name}"):
        if _whole(path.parents[1]):
            return path
    raise SystemExit(f"no saved step holds the weights of step {best}")


def mark(folder: Path) -> None:
    """Write the files of a checkpoint and their sizes, after syncing all of them."""
    sizes: dict[str, int] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as handle:
            os.fsync(handle.fileno())
        sizes[path.relative_to(folder).as_posix()] = path.stat().st_size
    write_durably(folder / _MARK, json.dumps(sizes).encode())


def keep(checkpoint: Path, snapshots: Path, leave_out: tuple[str, ...] = _NOT_KEPT) -> None:
    """Link a saved step among the snapshots, whole or not at all, without files of some names."""
    target = snapshots / checkpoint.name
    if target.exists():
        return
    partial = snapshots / f".{checkpoint.name}"
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(checkpoint, partial, copy_function=_link, ignore=shutil.ignore_patterns(*leave_out))
    partial.rename(target)


def newest_whole(folder: Path) -> Path | None:
    """Return the checkpoint with the most steps whose files all have their size."""
    paths = [path for path in folder.glob("checkpoint-*") if path.name.rpartition("-")[2].isdigit() and _whole(path)]
    return max(paths, key=step_of, default=None)


def step_of(checkpoint: Path) -> int:
    """Return the optimizer steps of a checkpoint."""
    return int(checkpoint.name.rpartition("-")[2])


def clear(folder: Path) -> None:
    """Remove the checkpoints of a finished training."""
    shutil.rmtree(folder, ignore_errors=True)


def _whole(checkpoint: Path) -> bool:
    try:
        sizes: dict[str, int] = json.loads((checkpoint / _MARK).read_text(encoding="utf-8"))
        state = json.loads((checkpoint / _STATE).read_text(encoding="utf-8"))
        there = all((checkpoint / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False
    return there and _STATE in sizes and state.get("global_step") == step_of(checkpoint)


FOLDER = "trainer"
"""The folder of checkpoints in a job folder."""


class NotTheStep(Exception):
    """The saved step is not the ordered one."""


def find_resumable_step(run: Path, job_folder: Path, attempt: int) -> ResumeStep | None:
    """Return the newest whole step of a job, or None; raises OSError or ValueError if it cannot be digested."""
    newest = newest_whole(job_folder / FOLDER)
    if newest is None:
        return None
    path = newest.relative_to(run).as_posix()
    return ResumeStep(attempt=attempt, step=step_of(newest), path=path, digest=digest_path(newest))


def take_over(order: JobOrder, run: Path, job_folder: Path) -> dict[str, Any]:
    """Put the ordered step among the job's own; log it, and return it as facts for the manifest.

    The files are linked, not copied: they are three times as large as the weights, and no trainer changes one. Raises
    NotTheStep if it is gone or has another digest, OSError if it cannot be copied.
    """
    resumes = order.resumes
    if resumes is None:
        return {}
    source = run / resumes.path
    try:
        text = digest_path(source)
    except (OSError, ValueError) as error:
        raise NotTheStep(f"the checkpoint {resumes.path} cannot be read: {error}") from error
    if text != resumes.digest or step_of(source) != resumes.step:
        raise NotTheStep(f"the checkpoint {resumes.path} is {text}, expected {resumes.digest}")
    target = job_folder / FOLDER / source.name
    target.parent.mkdir(exist_ok=True)
    shutil.copytree(source, target, copy_function=_link)
    print(f"resumes from step {resumes.step}, saved by attempt {resumes.attempt} ({resumes.digest})", flush=True)
    return {"resumed": {"attempt": resumes.attempt, "step": resumes.step, "checkpoint": resumes.digest}}


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
