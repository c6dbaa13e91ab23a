"""How much the processes below one hold: memory and threads, cheap enough to look again while they multiply."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_RESIDENT, _THREADS = 21, 17
"""Places in ``/proc/PID/stat`` after the name, as proc(5) counts them from 3."""


class Usage(NamedTuple):
    """What processes hold together."""

    bytes: int
    threads: int


class Watched:
    """A process and everything below it.

    In a sandbox they have a ``/proc`` of their own, and one look at it lists them. Without one, or before it is there,
    every process of the machine has to be asked for its parent: too slow for those that multiply fastest.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._view: Path | None = None

    def usage(self, most_threads: int, most_bytes: int) -> Usage:
        """Return what they hold. Where one limit is passed, the figures need not be whole.

        Pages that several processes share are counted for each of them until that passes the limit; then each is
        given its part of them (PSS), which takes longer to read.
        """
        view, pids = self._below()
        if len(pids) > most_threads:
            return Usage(0, len(pids))
        held = threads = 0
        for pid in pids:
            with suppress(OSError, ValueError, IndexError):
                fields = (view / pid / "stat").read_text(errors="replace").rpartition(")")[2].split()
                held += int(fields[_RESIDENT]) * _PAGE
                threads += int(fields[_THREADS])
        if held > most_bytes:
            held = sum(_share(view / pid) for pid in pids)
        return Usage(held, threads)

    def end(self) -> None:
        """Kill them all. In a sandbox the first kill does it: the kernel ends the whole namespace."""
        below: list[psutil.Process] = []
        if self._view is None:
            with suppress(psutil.Error):
                below = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        for one in below:
            with suppress(psutil.Error):
                one.kill()

    def _below(self) -> tuple[Path, list[str]]:
        if self._view is None:
            self._view = self._own_proc()
        if self._view is not None:
            with suppress(OSError):
                return self._view, [name for name in os.listdir(self._view) if name.isdigit()]  # noqa: PTH208
        with suppress(psutil.Error):
            return _PROC, [str(one.pid) for one in psutil.Process(self._process.pid).children(recursive=True)]
        return _PROC, []

    def _own_proc(self) -> Path | None:
        """Return the ``/proc`` of the namespace below the process, once it is another one than ours."""
        with suppress(psutil.Error, OSError):
            for child in psutil.Process(self._process.pid).children():
                view = _PROC / str(child.pid) / "root" / "proc"
                if view.stat().st_dev != _PROC.stat().st_dev and (view / "1").is_dir():
                    return view
        return None


def held_by_tree(pid: int) -> int:
    """Return the bytes that a process and everything below it hold in memory now; shared pages count for each."""
    held = 0
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with suppress(psutil.Error):
                held += one.memory_info().rss
    return held


def _share(process: Path) -> int:
    """Return the bytes of a process with its part of shared pages; what cannot be read is not there any more."""
    with suppress(OSError, ValueError, IndexError):
        for line in (process / "smaps_rollup").read_text(errors="replace").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
