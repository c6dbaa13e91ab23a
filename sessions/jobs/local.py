"""Jobs as processes on this machine. They outlive the orchestrator; the job folder is all they share with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from pydantic import ValidationError

from reviews.store import write_durably
from sessions.jobs.launcher import JobState
from sessions.jobs.owner import is_alive
from specs.evidence import ExitRecord

CLAIM_GRACE_S = 30.0
"""How long a claim folder may exist before its claim file does."""

_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
_SET = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
    # Waiting threads sleep. By default they spin, and two jobs on the same cores then slow each other down many times
    # (bench/contention.py).
    "OMP_WAIT_POLICY": "PASSIVE",
}


def job_environment() -> dict[str, str]:
    """Return the whole environment of a job: named variables only, so that no key or token gets in."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ} | _SET


class LocalLauncher:
    """A :class:`sessions.jobs.launcher.Launcher` for this machine."""

    name = "local"

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, folder: Path) -> None:
        """Start the wrapper in a session of its own, so that a signal to our terminal does not reach it."""
        if (folder / "claim").exists():
            return
        with (folder / "wrapper.log").open("ab") as log:
            wrapper = subprocess.Popen(
                [sys.executable, "-P", "-m", "sessions.jobs.wrapper", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=job_environment(),
                start_new_session=True,
            )
        self._started.append(wrapper)

    def poll(self, folder: Path) -> JobState:
        """Read the exit record; without one, see whether the process that claimed the job still lives."""
        # Wrappers that have ended are collected, so that no zombies pile up.
        self._started = [wrapper for wrapper in self._started if wrapper.poll() is None]
        record = _exit_record(folder)
        if record is not None:
            return JobState("exited", record)
        claim = folder / "claim"
        if not claim.exists():
            return JobState("pending")
        try:
            owner = json.loads((claim / "claim.json").read_bytes())
            alive = is_alive(owner)
        except (OSError, ValueError, KeyError, TypeError):
            alive = time.time() - claim.stat().st_mtime < CLAIM_GRACE_S
        if alive:
            return JobState("running")
        # It may have ended between the two looks.
        record = _exit_record(folder)
        return JobState("exited", record) if record is not None else JobState("lost")

    def cancel(self, folder: Path, reason: str) -> None:
        """Leave a request the wrapper looks for with every heartbeat."""
        write_durably(folder / "cancel", reason.encode())


def _exit_record(folder: Path) -> ExitRecord | None:
    try:
        return ExitRecord.model_validate_json((folder / "exit.json").read_bytes())
    except (OSError, ValidationError):
        return None
