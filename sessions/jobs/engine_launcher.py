"""Jobs on another system's engine: the contract of an engine, and the launcher that works on any of them.

What an engine says of a job is a hint: only the wrapper's exit record says that a job ended, and its heartbeat that it
lives. The hint decides how long a silent job is waited for before it counts as lost and is asked to end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from reviews.trail.chain.store import write_durably
from sessions.jobs.job_state import (
    WHY,
    EngineUnavailable,
    exit_fault,
    key_of,
    read_exit,
    read_order,
    withdraw,
    withdrawn_because,
)
from sessions.jobs.launcher import JobState
from sessions.jobs.transfer.job_transfer import Transfer
from sessions.run.heartbeat import Silence
from specs.session.operations import WAIT_HOURS
from specs.system.errors import AuditDamage
from specs.system.resources import Resources
from specs.system.text import plain

END_S = 120.0
"""How long a job may take to leave an exit record after its hours are over."""
EngineState = Literal["pending", "running", "exited", "lost", "unknown"]
"""``unknown``: the engine has nothing for the job, and another submit may help."""
Hint = Literal["pending", "running", "exited", "lost", "unknown", "unreachable"]
"""An engine's state of a job, or that the engine does not answer."""

PATIENCE_S: dict[Hint, float] = {
    # Where several machines share a disk, one may see the files of another a minute late.
    "exited": 90.0,
    "lost": 90.0,
    "unknown": 120.0,
    "unreachable": 180.0,
    # The engine may keep the state of a machine that is gone.
    "pending": 900.0,
    "running": 900.0,
}
"""How long a job may be silent before it counts as lost, by what the engine says of it.

An unclaimed job may wait as long as its order says while the engine has no machine for it. ``pending`` is then the
least time that a paid machine may take to start the job; the others count from when the engine said so.
"""
ASK_EVERY_S = 2.0


class EngineStatus(NamedTuple):
    """What an engine says of a job: its state, and untrusted text for people."""

    state: EngineState
    message: str = ""


class JobEngine(Protocol):
    """An engine; its handles stay valid after restarts. Methods end in time, or raise ``EngineUnavailable``."""

    name: str
    rents: bool
    """Whether a machine is paid for as soon as the engine knows of it, not only while the job runs."""

    def submit(self, key: str, argv: Sequence[str], resources: Resources) -> str:
        """Start a command once for a key, and return its handle; a second submit returns the same handle.

        Raises:
            EngineUnavailable: it is unknown whether the command was started. Submitting again is safe.
            Blocked: the engine can never run this.
        """
        ...

    def find(self, key: str) -> str | None:
        """Return the handle of a submitted key; None if the engine does not know it."""
        ...

    def poll(self, handle: str) -> EngineStatus:
        """Return what the engine thinks of the command."""
        ...

    def cancel(self, handle: str) -> None:
        """Ask the engine to end the command; a command that has ended stays as it is."""

    def logs(self, handle: str) -> bytes:
        """Return what the command printed."""
        ...


class EngineLauncher:
    """A :class:`sessions.jobs.launcher.Launcher` on an engine.

    Without a carrier, the job's machine has the run folder under the same path. ``python`` is the interpreter that has
    Peergate there, and ``patience`` replaces :data:`PATIENCE_S`.
    """

    def __init__(
        self,
        engine: JobEngine,
        carrier: Transfer | None = None,
        python: str = sys.executable,
        patience: dict[Hint, float] | None = None,
        ask_every_s: float = ASK_EVERY_S,
    ) -> None:
        self.name, self.engine = engine.name, engine
        self._carrier, self._python = carrier, python
        self._patience, self._ask_every_s = patience or PATIENCE_S, ask_every_s
        self._silence = Silence()
        self._damaged: dict[Path, float] = {}
        self._hints: dict[str, tuple[float, Hint, str]] = {}
        self._stopped: set[Path] = set()

    def start(self, folder: Path) -> None:
        """Submit the wrapper under the job's key, unless the job is claimed; a second submit does nothing.

        Raises:
            EngineUnavailable: the engine cannot be reached.
            Blocked: it can never give the job what it asks for.
        """
        if (folder / "claim").exists():
            return
        order = read_order(folder)
        if self._carrier is not None:
            self._carrier.send(folder)
        arguments = self._carrier.argv(folder) if self._carrier else [str(folder)]
        argv = [self._python, "-P", "-m", "sessions.jobs.transfer.remote_entry", *arguments]
        self.engine.submit(key_of(folder), argv, order.grant.resources or Resources())
        self._hints.pop(folder.name, None)

    def poll(self, folder: Path) -> JobState:
        """Return the job's state from its files. Without a sign of life for too long it is lost, and asked to end."""
        record = read_exit(folder)
        if record is None and self._carrier is not None:
            if self._is_damaged(self._carrier, folder):
                return JobState("lost")
            record = read_exit(folder)
        if record is not None:
            return JobState("exited", record)
        claimed = (folder / "claim").exists()
        if claimed and (because := withdrawn_because(folder)) is not None:
            if folder not in self._stopped:
                # The process that withdrew it may have been killed before it told the engine.
                self._stopped.add(folder)
                self._stop(folder)
            return JobState("lost", message=because)
        hint, text = self._hint(folder)
        over = self._over_claimed(folder, hint) if claimed else self._over_waiting(folder, hint)
        if not over:
            return JobState("running") if claimed else JobState("pending", message=self._waits_for(folder, hint, text))
        why = plain(f"{over}, {self._says(hint, text)}", WHY)
        try:
            if not claimed and not self._withdraw(folder, why):
                return JobState("pending")
        except EngineUnavailable as error:
            # It may begin until it is certain that it never does.
            return JobState("pending", message=f"{over}, and it cannot be withdrawn: {error.message}")
        self._give_up(folder, hint, why)
        record = read_exit(folder)
        return JobState("exited", record) if record is not None else JobState("lost", message=exit_fault(folder) or why)

    def cancel(self, folder: Path, reason: str) -> None:
        """Ask the wrapper to end the job; an unclaimed job is withdrawn and taken from the engine's queue."""
        write_durably(folder / "cancel", reason.encode())
        with suppress(EngineUnavailable):
            if self._carrier is not None:
                self._carrier.cancel(folder, reason)
            if self._withdraw(folder, reason):
                self._stop(folder)

    def _is_damaged(self, carrier: Transfer, folder: Path) -> bool:
        """Fetch; say whether the files a job left have been damaged for so long that a new transfer will not help."""
        try:
            carrier.fetch(folder)
        except (EngineUnavailable, OSError):
            # A failed transfer counts as silence.
            return False
        except AuditDamage as error:
            # Bytes that were damaged on the way are fetched again; bytes that were sent so stay damaged.
            since = self._damaged.setdefault(folder, time.monotonic())
            if time.monotonic() - since <= self._patience["exited"]:
                return False
            (folder / "wrapper.log").write_text(f"{error}\n", encoding="utf-8")
            return True
        return False

    def _hint(self, folder: Path) -> tuple[Hint, str]:
        value, hint, text = self._hints.get(folder.name, (float("-inf"), "unknown", ""))
        if time.monotonic() - value < self._ask_every_s:
            return hint, text
        try:
            handle = self.engine.find(key_of(folder))
            hint, text = ("unknown", "") if handle is None else self.engine.poll(handle)
        except EngineUnavailable as error:
            hint, text = "unreachable", error.message
        self._hints[folder.name] = time.monotonic(), hint, text
        return hint, text

    def _says(self, hint: Hint, text: str) -> str:
        by_hint = {
            "unreachable": f"{self.engine.name} cannot be asked",
            "unknown": f"{self.engine.name} has nothing for it",
        }
        message = by_hint.get(hint, f"{self.engine.name} says '{hint}'")
        return f"{message}: {' '.join(plain(text, 200).split())}" if text else message

    def _waits_for(self, folder: Path, hint: Hint, text: str) -> str:
        limit = wait_seconds(read_order(folder).grant.resources or Resources())
        return f"{self._says(hint, text)}; it is given up if it does not begin within {limit / 3600:g} h"

    def _over_waiting(self, folder: Path, hint: Hint) -> str:
        """Return why an unclaimed job is given up; empty while it may wait."""
        waited, so_far = self._silence.of(folder), self._silence.since(folder, "hint", hint)
        paid = self.engine.rents and hint in ("pending", "running")
        there = self._silence.since(folder, "held", "held") if paid else 0.0
        if hint in ("exited", "lost", "running"):
            return f"not begun {so_far:.0f} s after that" if so_far > self._patience[hint] else ""
        order = read_order(folder)
        resources = order.grant.resources or Resources()
        if waited > wait_seconds(resources):
            return f"not begun in {waited / 3600:.2g} h"
        # Machines take minutes to start, so a short job without ``max_hours`` gets those too.
        starts = max(self._patience["pending"], order.max_seconds)
        if paid and there > (starts if resources.max_hours is None else resources.max_hours * 3600):
            return f"its machine has not begun it in {there / 3600:.2g} h"
        return ""

    def _over_claimed(self, folder: Path, hint: Hint) -> str:
        """Return why a claimed job is given up; empty while it lives. Ask it to end when its hours are over."""
        silent, value = self._silence.of(folder), self._silence.since(folder, "held", "held")
        if silent > self._patience[hint]:
            return f"silent for {silent:.0f} s"
        resources = read_order(folder).grant.resources
        if resources is None or resources.max_hours is None or value <= resources.max_hours * 3600:
            return ""
        why = f"max_hours: its machine was held for {resources.max_hours:g} h"
        if not (folder / "cancel").exists():
            self.cancel(folder, why)
        return why if value > resources.max_hours * 3600 + END_S else ""

    def _give_up(self, folder: Path, hint: Hint, why: str) -> None:
        """Ask a job that is about to count as lost to end, in every way there is, and keep what its wrapper printed."""
        if not (folder / "cancel").exists():
            write_durably(folder / "cancel", why.encode())
        # The engine itself may be gone; asking it helps only if it is not.
        if self._carrier is not None:
            with suppress(EngineUnavailable):
                self._carrier.cancel(folder, why)
        with suppress(EngineUnavailable):
            if (handle := self.engine.find(key_of(folder))) is not None:
                # It is all there is of a job that never began.
                (folder / "wrapper.log").write_bytes(self.engine.logs(handle)[-(1 << 16) :])
        if self.engine.rents or hint in ("running", "pending"):
            self._stop(folder)

    def _withdraw(self, folder: Path, why: str) -> bool:
        if self._carrier is not None and not self._carrier.withdraw(folder, why):
            return False
        return withdraw(folder, folder.name, why)

    def _stop(self, folder: Path) -> None:
        with suppress(EngineUnavailable):
            if (handle := self.engine.find(key_of(folder))) is not None:
                self.engine.cancel(handle)


def wait_seconds(resources: Resources) -> float:
    """Return how long an attempt may wait before it begins."""
    return 3600 * (WAIT_HOURS if resources.max_wait_hours is None else resources.max_wait_hours)
