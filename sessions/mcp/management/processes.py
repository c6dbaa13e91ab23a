"""Runs Peergate's own commands, each in a separate process: a session outlives the server that started it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from sessions.jobs.orphans import start_detached

PROGRAM: tuple[str, ...] = (sys.executable, "-P", "-m", "sessions.commands.cli")
"""-P: nothing in the project's folder is imported in place of a module."""
LONGEST_S = 3600.0
MOST_OUTPUT = 400_000
MOST_ERROR = 4000


class CommandResult(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: str
    error: str


def run(arguments: list[str]) -> CommandResult:
    """Run a command to its end; it is ended after an hour."""
    try:
        done = subprocess.run(
            [*PROGRAM, *arguments], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=LONGEST_S
        )
    except subprocess.TimeoutExpired:
        return CommandResult(1, "", f"it took longer than {LONGEST_S:.0f} s and was ended")
    return CommandResult(done.returncode, _text(done.stdout, MOST_OUTPUT), _text(done.stderr[-MOST_ERROR:], MOST_ERROR))


class BackgroundCommand:
    """A command that runs on its own."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, begin: int) -> None:
        self._process, self._log, self._begin = process, log, begin

    def poll(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self._process.poll()

    def read_error_output(self) -> str:
        """Return what it has written, as far as it speaks of an error."""
        with self._log.open("rb") as file:
            file.seek(self._begin)
            lines = _text(file.read(MOST_OUTPUT), MOST_OUTPUT).splitlines()
        first = next((number for number, line in enumerate(lines) if line.startswith("peergate: ")), len(lines))
        return "\n".join(lines[first:])[-MOST_ERROR:]


def begin(arguments: list[str], log: Path) -> BackgroundCommand:
    """Start a command that continues when this process ends; what it writes is appended to ``log``."""
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    log.touch(mode=0o600)
    size = log.stat().st_size
    process = start_detached([*PROGRAM, *arguments], log, Path.cwd(), dict(os.environ))
    return BackgroundCommand(process, log, size)


def _text(data: bytes, most: int) -> str:
    return data[:most].decode("utf-8", "replace")
