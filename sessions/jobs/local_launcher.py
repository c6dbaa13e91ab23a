"""Jobs as processes on this machine. They outlive the orchestrator; the job folder is all they share with it."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from reviews.trail.chain.store import write_durably
from sessions.jobs import machine_capacity
from sessions.jobs.job_environment import job_environment
from sessions.jobs.job_host import JobHost, host_for
from sessions.jobs.job_state import exit_fault, read_exit, read_order, read_owner, withdraw, withdrawn_because
from sessions.jobs.launcher import HERE, JobState
from sessions.jobs.orphans import start_detached
from sessions.jobs.untrusted_files import NotReadable, read_end
from sessions.run.claim import is_alive
from sessions.run.heartbeat import Silence
from specs.system.errors import EvidenceMissing
from specs.system.text import plain

START_S = 900.0
"""How long a job may be unclaimed before it counts as lost. Its wrapper is started again meanwhile."""
HOST_S = 30.0
"""How long a host may take to fork a wrapper before a fresh one is started; the first claim counts."""
CLAIM_GRACE_S = 30.0
"""How long a claim folder may exist before its claim file does."""
ELSEWHERE_S = 120.0
"""How long the heartbeat of a job that another machine claimed may stay away before the job counts as lost."""


class LocalLauncher:
    """A :class:`sessions.jobs.launcher.Launcher` for this machine."""

    name = HERE

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []
        self._silence = Silence()
        self._hosts: dict[Path, JobHost | None] = {}
        """Of each started job the host that forks its wrapper; None once it was started as a fresh process."""

    def start(self, folder: Path) -> None:
        """Start the wrapper in its own session; raise Blocked if this machine lacks what the order asks for.

        A host forks it, where there is one.
        """
        if (folder / "claim").exists():
            return
        order = request = None
        # The wrapper reports what is wrong with an order.
        with suppress(EvidenceMissing):
            order = read_order(folder)
            request = order.grant.resources
            machine_capacity.require(request, order.parameters, folder.name)
        words = [sys.executable, "-P", "-m", "sessions.jobs.wrapper", str(folder)]
        environment = job_environment(request)
        # What was started before and is unclaimed is started in the way that needs nothing else.
        host = host_for(order, words[0], environment) if order is not None and folder not in self._hosts else None
        self._hosts[folder] = host if host is not None and host.fork(words) else None
        if self._hosts[folder] is None:
            self._started.append(start_detached(words, folder / "wrapper.log", folder, environment))

    def poll(self, folder: Path) -> JobState:
        """Read the exit record; without one, see whether the process that claimed the job lives."""
        # Collects wrappers that have ended, so that no zombies pile up.
        self._started = [wrapper for wrapper in self._started if wrapper.poll() is None]
        record = read_exit(folder)
        if record is not None:
            return JobState("exited", record)
        claim = folder / "claim"
        if not claim.exists():
            return self._check_unclaimed(folder)
        if (because := withdrawn_because(folder)) is not None:
            return JobState("lost", message=because)
        here = False
        try:
            owner = read_owner(folder)
            if owner is None:
                return JobState("pending")
            # After a session moved to another machine, its heartbeat is the only sign of a job left there.
            here = owner.get("host", platform.node()) == platform.node()
            alive = is_alive(owner) if here else self._silence.of(folder) < ELSEWHERE_S
        except (ValueError, KeyError, TypeError):
            alive = time.time() - claim.stat().st_mtime < CLAIM_GRACE_S
        if alive:
            return JobState("running", is_here=here)
        # It may have ended between the two looks.
        record = read_exit(folder)
        return JobState("exited", record) if record is not None else JobState("lost", message=exit_fault(folder))

    def _check_unclaimed(self, folder: Path) -> JobState:
        """Return pending, and after a while withdraw a job that cannot be started, so that it never begins."""
        silent = self._silence.of(folder)
        if (host := self._hosts.get(folder)) is not None and (host.has_ended() or silent > HOST_S):
            self.start(folder)
        last = ""
        with suppress(NotReadable):
            lines = read_end(folder / "wrapper.log", 4096)[0].decode("utf-8", "replace").strip().splitlines()
            last = plain(lines[-1], 200) if lines else ""
        if silent <= START_S:
            return JobState("pending", message=f"its wrapper has not begun: {last}" if last else "")
        why = f"not begun in {silent:.0f} s{f', its wrapper said: {last}' if last else ''}"
        # A full disk takes no claim, and pauses the session elsewhere.
        with suppress(OSError):
            if withdraw(folder, folder.name, why):
                return JobState("lost", message=why)
        return JobState("pending")

    def cancel(self, folder: Path, reason: str) -> None:
        """Leave a request that the wrapper looks for with every heartbeat."""
        write_durably(folder / "cancel", reason.encode())
