"""How much the processes below one hold, cheap enough to look again while they multiply.

Counted is what a script can hold without it being in its resident pages too: swapped pages, page tables, sockets, files
in the sandbox's folders. A process whose first thread has ended shows none of it, its other threads do.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

_PROC = Path("/proc")
_PAGES = ("VmRSS", "VmSwap")
"""In ``/proc/PID/status``, in KiB: those in memory, and those put out to swap."""
_SHARED = ("Pss", "SwapPss")
_QUEUED = ("tcp", "tcp6", "udp", "udp6")
_FOLDERS = ("out", "tmp", "dev/shm")
"""The folders of the sandbox that a script can write to."""


class Usage(NamedTuple):
    """What processes hold together."""

    bytes: int
    threads: int
    files: int = 0
    """Files and folders in that folder of the sandbox which holds most of them."""


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
        found = [_Process(view / pid) for pid in pids]
        alone = sum(one.tables for one in found) + (0 if self._view is None else _in_sockets(self._view))
        held = alone + sum(one.pages for one in found)
        # What is too much without the pages too need not be looked through page by page.
        if held > most_bytes >= alone:
            held = alone + sum(one.share() for one in found)
        return Usage(held, sum(one.threads for one in found), 0 if self._view is None else _files(self._view))

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


class _Process:
    """A process as ``/proc`` shows it; what cannot be read is not there any more."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        fields = _fields(folder / "status")
        self.threads = fields.get("Threads", 0)
        if "VmRSS" not in fields and self.threads > 1:
            # Its first thread has ended: the memory is there, and its other threads tell of it.
            for thread in _threads(folder):
                fields = _fields(thread / "status")
                if "VmRSS" in fields:
                    self._folder = thread
                    break
        self.tables = fields.get("VmPTE", 0) * 1024
        self.pages = sum(fields.get(name, 0) for name in _PAGES) * 1024

    def share(self) -> int:
        """Return the bytes of its own pages and its part of shared ones, or of all where that part cannot be read."""
        fields = _fields(self._folder / "smaps_rollup")
        return sum(fields[name] for name in _SHARED) * 1024 if fields.keys() >= {*_SHARED} else self.pages


def _fields(path: Path) -> dict[str, int]:
    """Return the lines ``name: number`` of a file of ``/proc``."""
    found: dict[str, int] = {}
    with suppress(OSError):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            with suppress(ValueError, IndexError):
                found[name] = int(value.split()[0])
    return found


def _threads(process: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from (process / "task").iterdir()


def _in_sockets(view: Path) -> int:
    """Return the most bytes that the sockets of a namespace can hold.

    A Unix socket holds what may be on its way from it, which is a fixed size in the sandbox. Others hold what stands in
    their queues, and about as much again for every packet's own record.
    """
    held = 0
    with suppress(OSError, ValueError):
        size = int((_PROC / "sys/net/core/wmem_default").read_text(encoding="ascii"))
        # The first line names the columns.
        held += ((view / "1/net/unix").read_bytes().count(b"\n") - 1) * size
    for name in _QUEUED:
        with suppress(OSError, ValueError, IndexError):
            for line in (view / "1/net" / name).read_text(encoding="ascii").splitlines()[1:]:
                held += 2 * sum(int(queue, 16) for queue in line.split()[4].split(":"))
    return held


def _files(view: Path) -> int:
    """Return how many files and folders lie in the fullest of the folders that a script can write to."""
    most = 0
    for name in _FOLDERS:
        with suppress(OSError):
            found = os.statvfs(view.parent / name)
            most = max(most, found.f_files - found.f_ffree)
    return most
