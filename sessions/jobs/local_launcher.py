"""Jobs as processes on this machine. They outlive the orchestrator; the job folder is all they share with it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from reviews.trail.store import write_durably
from sessions.jobs import machine_capacity
from sessions.jobs.claim import is_alive
from sessions.jobs.heartbeat import Silence
from sessions.jobs.job_state import (
    exit_fault,
    read_exit,
    read_order,
    read_owner,
    withdraw,
    withdrawn_because,
)
from sessions.jobs.launcher import JobState
from sessions.jobs.sandbox.sandbox import JOB_VARIABLES
from sessions.jobs.untrusted_files import NotReadable, read_end
from specs.errors import EvidenceMissing
from specs.resources import Resources
from specs.text import plain

START_S = 900.0
"""How long a job may be without a claim before it counts as lost. Its wrapper is started again meanwhile."""
CLAIM_GRACE_S = 30.0
"""How long a claim folder may exist before its claim file does."""
ELSEWHERE_S = 120.0
"""How long the heartbeat of a job that was claimed on another machine may stay away before the job counts as lost."""

_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
_SET = JOB_VARIABLES | {"PYTHONUNBUFFERED": "1"}


def job_environment(asked: Resources | None = None) -> dict[str, str]:
    """Return the whole environment of a job: named variables only, so that no key or token gets in."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ} | _SET
    return kept | ({"OMP_NUM_THREADS": str(asked.cpus)} if asked and asked.cpus else {})


class LocalLauncher:
    """A :class:`sessions.jobs.launcher.Launcher` for this machine."""

    name = "local"

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []
        self._silence = Silence()

    def start(self, folder: Path) -> None:
        """Start the wrapper in a session of its own, so that a signal to our terminal does not reach it.

        Raises:
            Blocked: the order asks for more than this machine has, or for a GPU where there is none.
        """
        if (folder / "claim").exists():
            return
        asked = None
        # What is wrong with an order the wrapper tells.
        with suppress(EvidenceMissing):
            order = read_order(folder)
            asked = order.grant.resources
            if asked is not None:
                machine_capacity.require(asked, folder.name)
            machine_capacity.require_device(order.parameters, folder.name)
        with (folder / "wrapper.log").open("ab") as log:
            wrapper = subprocess.Popen(
                [sys.executable, "-P", "-m", "sessions.jobs.wrapper", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=job_environment(asked),
                start_new_session=True,
            )
        self._started.append(wrapper)

    def poll(self, folder: Path) -> JobState:
        """Read the exit record; without one, see whether the process that claimed the job still lives."""
        # Wrappers that have ended are collected, so that no zombies pile up.
        self._started = [wrapper for wrapper in self._started if wrapper.poll() is None]
        record = read_exit(folder)
        if record is not None:
            return JobState("exited", record)
        claim = folder / "claim"
        if not claim.exists():
            return self._unclaimed(folder)
        if (because := withdrawn_because(folder)) is not None:
            return JobState("lost", told=because)
        here = False
        try:
            owner = read_owner(folder)
            if owner is None:
                return JobState("pending")
            # Of a session that was resumed on another machine only the heartbeat can tell from here.
            here = owner.get("host", platform.node()) == platform.node()
            alive = is_alive(owner) if here else self._silence.of(folder) < ELSEWHERE_S
        except (ValueError, KeyError, TypeError):
            alive = time.time() - claim.stat().st_mtime < CLAIM_GRACE_S
        if alive:
            return JobState("running", is_here=here)
        # It may have ended between the two looks.
        record = read_exit(folder)
        return JobState("exited", record) if record is not None else JobState("lost", told=exit_fault(folder))

    def _unclaimed(self, folder: Path) -> JobState:
        """What cannot be started begins neither now nor later: after a while it has its claim taken."""
        silent = self._silence.of(folder)
        last = _last_words(folder / "wrapper.log")
        if silent <= START_S:
            return JobState("pending", told=f"its wrapper has not begun: {last}" if last else "")
        why = f"not begun in {silent:.0f} s{f', its wrapper said: {last}' if last else ''}"
        # A disk that takes no claim is full, and that pauses the session elsewhere.
        with suppress(OSError):
            if withdraw(folder, folder.name, why):
                return JobState("lost", told=why)
        return JobState("pending")

    def cancel(self, folder: Path, reason: str) -> None:
        """Leave a request the wrapper looks for with every heartbeat."""
        write_durably(folder / "cancel", reason.encode())


def _last_words(log: Path) -> str:
    """Return the last line that a wrapper printed; empty where it printed none."""
    try:
        lines = read_end(log, 4096)[0].decode("utf-8", "replace").strip().splitlines()
    except NotReadable:
        return ""
    return plain(lines[-1], 200) if lines else ""
