"""Jobs on an engine of others: what an engine has to do, and the launcher that works on any of them.

What an engine says of a job is a hint. Only the wrapper's exit record says that a job ended, and how; only its
heartbeat says that it lives. The hint decides how long a silent job is waited for before it counts as lost; a lost job
is asked to end itself, in case it still lives. A job that does not begin within its waiting time has its claim taken
and is lost.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from reviews.trail.store import write_durably
from sessions.jobs.heartbeat import Silence
from sessions.jobs.job_state import WHY, exit_fault, read_exit, read_order, withdraw, withdrawn_because
from sessions.jobs.launcher import JobState
from specs.digests import digest_bytes
from specs.errors import AuditDamage, Blocked
from specs.job_records import JobOrder
from specs.resources import WAIT_HOURS, Resources
from specs.text import plain

END_S = 120.0
"""How long a job has to leave an exit record after its hours are over."""
EngineState = Literal["pending", "running", "exited", "lost", "unknown"]
"""``unknown``: nothing is there for the job, and submitting it again may help."""
Hint = Literal["pending", "running", "exited", "lost", "unknown", "unreachable"]
"""An engine's state of a job; or the engine cannot be asked."""

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

What nobody has claimed may wait for as long as its order says where the engine knows of no machine for it; ``pending``
is then how long one that is paid for may take to start at least, and the others count from when the engine said so.
"""
ASK_EVERY_S = 2.0


class EngineStatus(NamedTuple):
    """What an engine says of a job; ``code`` where it knows how the job's first process ended."""

    state: EngineState
    code: int | None = None
    told: str = ""
    """What it says beside that, for people; untrusted."""


class EngineUnavailable(Blocked):
    """The engine did not answer in time, or refused. The session pauses; running jobs continue."""


class Engine(Protocol):
    """The contract of an engine. A handle is text that means the same to another process, after any restart.

    Every method has a time limit and raises ``EngineUnavailable`` where the engine does not.
    """

    name: str
    rents: bool
    """Whether a machine is paid for from when the engine knows of it, not only while the job runs."""

    def submit(self, key: str, argv: Sequence[str], env: dict[str, str], resources: Resources) -> str:
        """Start a command once for a key, and return its handle; a second submit returns that of the first.

        Raises:
            EngineUnavailable: it is not known whether the command was started. Submitting again is safe.
            Blocked: the engine can never carry this out.
        """
        ...

    def find(self, key: str) -> str | None:
        """Return the handle of what was submitted under a key; None where the engine knows of nothing."""
        ...

    def poll(self, handle: str) -> EngineStatus:
        """Say how the engine thinks the command is."""
        ...

    def cancel(self, handle: str, reason: str) -> None:
        """Ask the engine to end the command; nothing happens where it has ended."""
        ...

    def logs(self, handle: str, offset: int) -> bytes:
        """Return what the command printed from a byte on; nothing where there is no more."""
        ...


class Carrier(Protocol):
    """Moves a job's folder between here and a machine that does not share a disk with this one."""

    def send(self, folder: Path) -> None:
        """Bring order and inputs to where the job finds them; repeating it brings what is missing."""
        ...

    def fetch(self, folder: Path) -> None:
        """Fetch what the job reported so far, and what it left once it has ended."""
        ...

    def cancel(self, folder: Path, reason: str) -> None:
        """Bring a request to end to the job."""
        ...

    def withdraw(self, folder: Path, why: str) -> bool:
        """Take the claim in the job's place, so that it never starts; False where it has been claimed."""
        ...

    def argv(self, folder: Path) -> list[str]:
        """Return the arguments of ``sessions.jobs.transfer.remote_entry`` for the job."""
        ...


class EngineLauncher:
    """A :class:`sessions.jobs.launcher.Launcher` on an engine.

    Args:
        engine: what starts the wrapper.
        carrier: for jobs that do not see this machine's disk; without one, the job's machine has the run folder under
            the same path.
        python: the interpreter that has Peergate on the job's machine.
        patience: replaces :data:`PATIENCE_S`.
        ask_every_s: how often the engine is asked at most.
    """

    def __init__(
        self,
        engine: Engine,
        carrier: Carrier | None = None,
        python: str = sys.executable,
        patience: dict[Hint, float] | None = None,
        ask_every_s: float = ASK_EVERY_S,
    ) -> None:
        self.name = engine.name
        self.engine = engine
        self._carrier = carrier
        self._python = python
        self._patience = patience or PATIENCE_S
        self._ask_every_s = ask_every_s
        self._silence = Silence()
        self._damaged: dict[Path, float] = {}
        self._hints: dict[str, tuple[float, Hint, str]] = {}
        self._stopped: set[Path] = set()

    def start(self, folder: Path) -> None:
        """Submit the wrapper under the job's key; nothing happens where the job was claimed or submitted before.

        Raises:
            EngineUnavailable: the engine cannot be reached.
            Blocked: it can never give the job what it asks for.
        """
        if (folder / "claim").exists():
            return
        order = read_order(folder)
        if self._carrier is not None:
            self._carrier.send(folder)
        told = self._carrier.argv(folder) if self._carrier else [str(folder)]
        argv = [self._python, "-P", "-m", "sessions.jobs.transfer.remote_entry", *told]
        asked = order.grant.resources or Resources()
        self.engine.submit(key_of(folder), argv, {}, asked)
        self._hints.pop(folder.name, None)

    def poll(self, folder: Path) -> JobState:
        """Return the job's state by what it left. Without a sign of life for too long it is lost, and asked to end."""
        record = read_exit(folder)
        if record is None and self._carrier is not None:
            if self._is_damaged(self._carrier, folder):
                return JobState("lost")
            record = read_exit(folder)
        if record is not None:
            return JobState("exited", record)
        claimed = (folder / "claim").exists()
        if claimed and (because := withdrawn_because(folder)) is not None:
            self._stop_withdrawn(folder, because)
            return JobState("lost", told=because)
        hint, said = self._hint(folder)
        over = self._over_claimed(folder, hint) if claimed else self._over_waiting(folder, hint)
        if not over:
            return JobState("running") if claimed else JobState("pending", told=self._waits_for(folder, hint, said))
        why = plain(f"{over}, {self._says(hint, said)}", WHY)
        try:
            if not self._give_up(folder, claimed, hint, why):
                return JobState("pending")
        except EngineUnavailable as error:
            # Until it is certain that it never begins, it may.
            return JobState("pending", told=f"{over}, and it cannot be withdrawn: {error.message}")
        record = read_exit(folder)
        return JobState("exited", record) if record is not None else JobState("lost", told=exit_fault(folder) or why)

    def cancel(self, folder: Path, reason: str) -> None:
        """Ask the wrapper to end the job; what nobody has claimed is withdrawn and taken from the engine's queue."""
        write_durably(folder / "cancel", reason.encode())
        with suppress(EngineUnavailable):
            if self._carrier is not None:
                self._carrier.cancel(folder, reason)
            if self._withdraw(folder, reason):
                self._stop(folder, reason)

    def _is_damaged(self, carrier: Carrier, folder: Path) -> bool:
        """Fetch; say whether what a job left has been no job's for so long that it will not become one."""
        try:
            carrier.fetch(folder)
        except (EngineUnavailable, OSError):
            # What cannot be fetched now is silence.
            return False
        except AuditDamage as error:
            # Bytes that were damaged on the way are fetched anew; what was sent so stays so.
            since = self._damaged.setdefault(folder, time.monotonic())
            if time.monotonic() - since <= self._patience["exited"]:
                return False
            (folder / "wrapper.log").write_text(f"{error}\n", encoding="utf-8")
            return True
        return False

    def _hint(self, folder: Path) -> tuple[Hint, str]:
        asked, hint, said = self._hints.get(folder.name, (float("-inf"), "unknown", ""))
        if time.monotonic() - asked < self._ask_every_s:
            return hint, said
        try:
            handle = self.engine.find(key_of(folder))
            told = None if handle is None else self.engine.poll(handle)
            hint, said = ("unknown", "") if told is None else (told.state, told.told)
        except EngineUnavailable as error:
            hint, said = "unreachable", error.message
        self._hints[folder.name] = time.monotonic(), hint, said
        return hint, said

    def _says(self, hint: Hint, said: str) -> str:
        by_hint = {
            "unreachable": f"{self.engine.name} cannot be asked",
            "unknown": f"{self.engine.name} has nothing for it",
        }
        told = by_hint.get(hint, f"{self.engine.name} says '{hint}'")
        return f"{told}: {' '.join(plain(said, 200).split())}" if said else told

    def _waits_for(self, folder: Path, hint: Hint, said: str) -> str:
        limit = wait_seconds(read_order(folder).grant.resources or Resources())
        return f"{self._says(hint, said)}; after {limit / 3600:g} h without a begin it is given up"

    def _over_waiting(self, folder: Path, hint: Hint) -> str:
        """Say why a job that nobody has claimed is given up; empty while it may wait."""
        waited, so_far = self._silence.of(folder), self._silence.since(folder, "hint", hint)
        paid = self.engine.rents and hint in ("pending", "running")
        there = self._silence.since(folder, "held", "held") if paid else 0.0
        if hint in ("exited", "lost", "running"):
            return f"not begun {so_far:.0f} s after that" if so_far > self._patience[hint] else ""
        order = read_order(folder)
        asked = order.grant.resources or Resources()
        if waited > wait_seconds(asked):
            return f"not begun in {waited / 3600:.2g} h"
        if paid and there > start_seconds(order, asked, self._patience["pending"]):
            return f"its machine has not begun it in {there / 3600:.2g} h"
        return ""

    def _over_claimed(self, folder: Path, hint: Hint) -> str:
        """Say why a job that was claimed is given up; empty while it lives. Ask it to end when its hours are over."""
        silent, held = self._silence.of(folder), self._silence.since(folder, "held", "held")
        if silent > self._patience[hint]:
            return f"silent for {silent:.0f} s"
        asked = read_order(folder).grant.resources
        if asked is None or asked.max_hours is None or held <= asked.max_hours * 3600:
            return ""
        why = f"max_hours: its machine was held for {asked.max_hours:g} h"
        if not (folder / "cancel").exists():
            self.cancel(folder, why)
        return why if held > asked.max_hours * 3600 + END_S else ""

    def _give_up(self, folder: Path, claimed: bool, hint: Hint, why: str) -> bool:
        """Make sure that a job which is about to count as lost does not run on unseen; False if it has just begun."""
        if not claimed and not self._withdraw(folder, why):
            return False
        if not (folder / "cancel").exists():
            write_durably(folder / "cancel", why.encode())
        # The engine itself may be gone; asking it helps only if it is not.
        if self._carrier is not None:
            with suppress(EngineUnavailable):
                self._carrier.cancel(folder, why)
        with suppress(EngineUnavailable):
            self._keep_said(folder)
        if self.engine.rents or hint in ("running", "pending"):
            with suppress(EngineUnavailable):
                self._stop(folder, why)
        return True

    def _stop_withdrawn(self, folder: Path, why: str) -> None:
        """Have the engine forget a job that never begins: whoever withdrew it may have been killed before that."""
        if folder in self._stopped:
            return
        self._stopped.add(folder)
        with suppress(EngineUnavailable):
            self._stop(folder, why)

    def _withdraw(self, folder: Path, why: str) -> bool:
        if self._carrier is not None and not self._carrier.withdraw(folder, why):
            return False
        return withdraw(folder, folder.name, why)

    def _stop(self, folder: Path, why: str) -> None:
        handle = self.engine.find(key_of(folder))
        if handle is not None:
            self.engine.cancel(handle, why)

    def _keep_said(self, folder: Path) -> None:
        """Keep what the wrapper printed: it is all there is of a job that never began."""
        handle = self.engine.find(key_of(folder))
        if handle is not None:
            (folder / "wrapper.log").write_bytes(self.engine.logs(handle, 0)[-(1 << 16) :])


def key_of(folder: Path) -> str:
    """Return the name of a job for an engine that other sessions use too: two sessions may have the same name.

    Raises:
        EvidenceMissing: the folder has no order.
    """
    order = read_order(folder)
    return f"{order.key}.{digest_bytes(order.canonical()).removeprefix('sha256:')[:12]}"


def wait_seconds(asked: Resources) -> float:
    """Return how long an attempt may wait before it begins."""
    return 3600 * (WAIT_HOURS if asked.max_wait_hours is None else asked.max_wait_hours)


def start_seconds(order: JobOrder, asked: Resources, least: float) -> float:
    """Return how long a machine that is paid for may be there before its job begins.

    Args:
        order: the job's.
        asked: what it asks for.
        least: granted in any case where no ``max_hours`` are stated: machines take minutes to start.
    """
    return max(least, order.max_seconds) if asked.max_hours is None else asked.max_hours * 3600
