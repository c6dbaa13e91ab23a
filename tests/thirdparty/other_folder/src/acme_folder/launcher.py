"""The launcher ``other_folder``: jobs run under ``ACME_FOLDER`` and see nothing of the run folder; files are copied."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from sessions.jobs.engine_launcher import EngineLauncher, EngineStatus
from sessions.jobs.launcher import Launcher
from sessions.jobs.transfer.job_transfer import Transfer
from sessions.jobs.transfer.shared_place import SharedPlace
from specs.system.resources import Resources


def make(run: Path) -> Launcher:
    """Return the launcher of a run."""
    elsewhere = Path(os.environ["ACME_FOLDER"]) / run.name
    return EngineLauncher(Processes(elsewhere / "handles"), Transfer(SharedPlace((elsewhere / "jobs").as_uri())))


class Processes:
    """An engine of processes: the five methods of :class:`sessions.jobs.engine_launcher.JobEngine`."""

    name = "other_folder"
    rents = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mine: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def submit(self, key: str, argv: Sequence[str], resources: Resources) -> str:
        """Start a command once for a key."""
        handle = self.find(key)
        if handle is not None:
            return handle
        handle = key.replace("/", "_")
        with (self._folder / f"{handle}.log").open("wb") as log:
            self._mine[handle] = subprocess.Popen(
                list(argv), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder, start_new_session=True
            )
        pid = self._mine[handle].pid
        record = {"pid": pid, "started": psutil.Process(pid).create_time()}
        (self._folder / handle).write_text(json.dumps(record), encoding="utf-8")
        return handle

    def find(self, key: str) -> str | None:
        """Return the handle of what was submitted under a key."""
        handle = key.replace("/", "_")
        return handle if (self._folder / handle).exists() else None

    def poll(self, handle: str) -> EngineStatus:
        """Return how the command is."""
        if handle in self._mine:
            code = self._mine[handle].poll()
            return EngineStatus("running") if code is None else EngineStatus("exited")
        return EngineStatus("running" if self._process(handle) else "lost")

    def cancel(self, handle: str) -> None:
        """End the command."""
        if (process := self._process(handle)) is not None:
            os.killpg(process.pid, signal.SIGTERM)

    def logs(self, handle: str) -> bytes:
        """Return what the command printed."""
        with suppress(FileNotFoundError):
            return (self._folder / f"{handle}.log").read_bytes()
        return b""

    def _process(self, handle: str) -> psutil.Process | None:
        record = json.loads((self._folder / handle).read_text(encoding="utf-8"))
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(record["pid"])
            return process if abs(process.create_time() - record["started"]) < 1 else None
        return None
