"""Going on after a kill: from the newest checkpoint of the same job folder that was written to its end.

Rows and weights are those of a run that nothing disturbed: order of the data, random state, optimizer, schedule and the
log come from the checkpoint. The trainer is built from the starting weights each time, so that reference
log-probabilities and first scores are of those.
"""

from __future__ import annotations

import json
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

_MARK = "whole.json"
_STATE = "trainer_state.json"


def train(trainer: Any, folder: Path) -> None:
    """Train from the beginning, or from the newest whole checkpoint in the trainer's folder."""
    newest = newest_whole(folder)
    if newest is None:
        trainer.train()
        return
    trainer.resumed_from = step_of(newest)
    if hasattr(trainer.model, "peft_config"):
        # peft would make adapters of bfloat16, which those over weights of 4 bits are, float32 from here on.
        trainer.model.load_adapter = partial(trainer.model.load_adapter, autocast_adapter_dtype=False)
    trainer.train(resume_from_checkpoint=str(newest))


def mark(folder: Path) -> None:
    """Write down which files a checkpoint has and how large they are, when all of them are on the disk."""
    sizes: dict[str, int] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as handle:
            os.fsync(handle.fileno())
        sizes[path.relative_to(folder).as_posix()] = path.stat().st_size
    partial = folder / f".{_MARK}"
    with partial.open("w", encoding="utf-8") as handle:
        json.dump(sizes, handle)
        handle.flush()
        os.fsync(handle.fileno())
    partial.replace(folder / _MARK)


def newest_whole(folder: Path) -> Path | None:
    """Return the checkpoint with the most steps whose files are all there at their size; others are passed over."""
    found = [path for path in folder.glob("checkpoint-*") if path.name.rpartition("-")[2].isdigit() and _whole(path)]
    return max(found, key=step_of, default=None)


def step_of(checkpoint: Path) -> int:
    """Return the optimizer steps that lie behind a checkpoint."""
    return int(checkpoint.name.rpartition("-")[2])


def clear(folder: Path) -> None:
    """Remove the checkpoints of a training that has ended."""
    shutil.rmtree(folder, ignore_errors=True)


def _whole(checkpoint: Path) -> bool:
    try:
        sizes: dict[str, int] = json.loads((checkpoint / _MARK).read_text(encoding="utf-8"))
        state = json.loads((checkpoint / _STATE).read_text(encoding="utf-8"))
        there = all((checkpoint / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False
    return there and _STATE in sizes and state.get("global_step") == step_of(checkpoint)
