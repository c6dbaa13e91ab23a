"""The job of a session that runs now: how far it is, the time left, and what it says on the way.

A job's progress is what the job says, for display: no metric comes from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from reviews.history.history import History
from sessions.jobs.launcher import job_folder
from sessions.jobs.untrusted_files import read_end
from specs.jobs.job_records import WITNESS, JobProgress
from specs.system.strict_json import read_json
from specs.trail.session_bodies import (
    ChallengeEntry,
    CloseEntry,
    ExitEntry,
    LaunchEntry,
    LostJobEntry,
    WitnessEntry,
)

MOST_BYTES = 1_000_000
"""The bytes that are read from the end of a progress file."""
MOST_CURVES = 4


def running_job(run: Path, history: History) -> dict[str, Any] | None:
    """Return the job that was launched and has not ended, None without one."""
    key = running_key(history)
    if key is None:
        return None
    lines = progress_of(job_folder(run, key))
    _, stage, attempt = key.removesuffix(WITNESS).rsplit(".", 2)
    results: dict[str, Any] = {"stage": stage, "attempt": attempt, "witness": key.endswith(WITNESS), "total": 0}
    results["noted"] = collect_noted_values(lines)
    if lines:
        last = lines[-1]
        results |= {"done": last.done, "total": last.total, "unit": last.unit, "note": last.note}
        results["left"] = last.seconds_left(lines[0])
    return results


def collect_noted_values(lines: Sequence[JobProgress]) -> dict[str, list[float]]:
    """Return the numbers that a job notes as it goes, by name: a loss, a learning rate."""
    values: dict[str, list[float]] = {}
    for progress in lines:
        for name, value in progress.note.items():
            if isinstance(value, float):
                values.setdefault(name, []).append(value)
    return dict(list(values.items())[:MOST_CURVES])


def running_key(history: History) -> str | None:
    """Return the key of the newest job or witness without an end; None if all have ended."""
    newest = history.newest(LaunchEntry, ChallengeEntry, ExitEntry, LostJobEntry, WitnessEntry, CloseEntry)
    match newest.body if newest else None:
        case LaunchEntry(key=key):
            return key
        case ChallengeEntry(stage=stage, attempt=number):
            attempt = history.attempt(stage, number)
            return None if attempt.witness else f"{attempt.job}{WITNESS}"
        case _:
            return None


def progress_of(folder: Path) -> list[JobProgress]:
    """Return the lines of a job's progress file, from its end, without unreadable lines."""
    try:
        data, _ = read_end(folder / "progress.jsonl", MOST_BYTES)
    except OSError:
        return []
    progresses: list[JobProgress] = []
    for line in data.rpartition(b"\n")[0].splitlines():
        try:
            progresses.append(JobProgress.model_validate(read_json(line)))
        except (ValueError, ValidationError):
            continue
    return progresses
