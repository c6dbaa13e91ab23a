"""On the pod: the orchestrator as its keeper sees it, whether it started it or found it there."""

from __future__ import annotations

import signal
import subprocess
import time
from contextlib import suppress
from typing import Protocol

import psutil

from sessions.pods.protocol import Order
from sessions.pods.remote import process_state
from sessions.pods.remote.pod_layout import Layout
from sessions.run.run_layout import TRAIL

LOOK_S = 0.1


class Orchestrator(Protocol):
    """A process that runs the session."""

    number: int
    """Which start of the session it is."""

    def is_running(self) -> bool:
        """Whether it is there."""
        ...

    def code(self) -> int | None:
        """Its exit code as a shell would say it; None while it runs, or where nobody can know."""
        ...

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        ...


class Child:
    """One that this keeper started."""

    def __init__(self, process: subprocess.Popen[bytes], number: int) -> None:
        self.number = number
        self._process = process

    def is_running(self) -> bool:
        """Whether it is there."""
        return self._process.poll() is None

    def code(self) -> int | None:
        """Its exit code: a signal is 128 and its number."""
        code = self._process.poll()
        return None if code is None else code if code >= 0 else 128 - code

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)


class Adopted:
    """One whose keeper was killed. It can be watched and ended; its exit code is told to nobody."""

    def __init__(self, layout: Layout) -> None:
        told = process_state.read(layout.own / process_state.ORCHESTRATOR) or {}
        self.number = int(told["number"])
        self._path = layout.own / process_state.ORCHESTRATOR
        self._process = psutil.Process(int(told["pid"]))

    def is_running(self) -> bool:
        """Whether it is there."""
        return process_state.lives(self._path)

    def code(self) -> int | None:
        """Nothing."""
        return None

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it is still the same process."""
        with suppress(psutil.Error):
            if self.is_running():
                self._process.send_signal(number)


def start_or_adopt(layout: Layout, order: Order) -> Orchestrator:
    """Return the orchestrator that is there, or start one with its keys in its environment."""
    if process_state.lives(layout.own / process_state.ORCHESTRATOR):
        return Adopted(layout)
    before = process_state.read(layout.own / process_state.ORCHESTRATOR)
    number = (before or {}).get("number", 0) + 1
    words = [order.python, "-P", "-m", "sessions.cli"]
    if not is_begun(layout):
        words += ["start", str(layout.specs / order.spec), "--name", layout.name]
        words += ["--profile", order.profile] if order.profile else []
    else:
        words += ["resume", layout.name]
        words += ["--answer", order.answer, "--reason", order.reason] if order.answer else []
    words += ["--runs", str(layout.runs)]
    with layout.log.open("ab") as log:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=layout.root,
            env=layout.environment() | order.secrets,
            start_new_session=True,
        )
    process_state.write(
        layout.own / process_state.ORCHESTRATOR, process_state.identity(process.pid) | {"number": number}
    )
    return Child(process, number)


def is_begun(layout: Layout) -> bool:
    """Say whether the session is registered here: then it goes on."""
    return (layout.run / TRAIL).exists()


def pause(orchestrator: Orchestrator, seconds: float) -> None:
    """Ask it to pause, ask again, and kill it."""
    for number, patience in ((signal.SIGTERM, seconds), (signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
        if orchestrator.is_running():
            orchestrator.send(number)
            deadline = time.monotonic() + patience
            while orchestrator.is_running() and time.monotonic() < deadline:
                time.sleep(LOOK_S)
