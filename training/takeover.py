"""The saved step of an earlier attempt, put where a job looks for its own: the attempt goes on from there.

Which step that is was decided before the job existed, and stands in its order with the step's digest.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from specs.digests import digest_path
from specs.evidence import JobOrder, Resumed
from training.optimise.resuming import newest_whole, step_of

FOLDER = "trainer"
"""Of the checkpoints, in a job folder."""


class NotTheStep(Exception):
    """The saved step is not what was ordered."""


def offered(run: Path, job_folder: Path, attempt: int) -> Resumed | None:
    """Return the newest step that a job saved to its end; None when there is none.

    Raises:
        OSError: it cannot be read.
        ValueError: a link lies in it.
    """
    newest = newest_whole(job_folder / FOLDER)
    if newest is None:
        return None
    path = newest.relative_to(run).as_posix()
    return Resumed(attempt=attempt, step=step_of(newest), path=path, digest=digest_path(newest))


def take_over(order: JobOrder, run: Path, job_folder: Path) -> dict[str, Any]:
    """Put the ordered step among the job's own; return what the manifest says of it, and say so in the log.

    The files are linked, not copied: they are as large as three times the weights, and no trainer changes one.

    Raises:
        NotTheStep: it is gone, or has another digest.
        OSError: it cannot be linked or copied.
    """
    resumes = order.resumes
    if resumes is None:
        return {}
    source = run / resumes.path
    try:
        found = digest_path(source)
    except (OSError, ValueError) as error:
        raise NotTheStep(f"the checkpoint {resumes.path} cannot be read: {error}") from error
    if found != resumes.digest or step_of(source) != resumes.step:
        raise NotTheStep(f"the checkpoint {resumes.path} is {found}, ordered was {resumes.digest}")
    target = job_folder / FOLDER / source.name
    target.parent.mkdir(exist_ok=True)
    shutil.copytree(source, target, copy_function=_link)
    print(f"goes on from step {resumes.step}, saved by attempt {resumes.attempt} ({resumes.digest})", flush=True)
    return {"resumed": {"attempt": resumes.attempt, "step": resumes.step, "checkpoint": resumes.digest}}


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
