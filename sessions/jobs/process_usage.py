"""Measures what the processes below another one hold, fast enough to keep up while they multiply.

Next to resident pages it counts swapped pages, page tables, sockets, and files in the sandbox's folders. A process
whose first thread has ended shows its memory only in its other threads.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

_PROC = Path("/proc")
_PAGES = ("VmRSS", "VmSwap")
"""In ``/proc/PID/status``, in KiB: pages in memory, and swapped pages."""
_SHARED = ("Pss", "SwapPss")
_QUEUED = ("tcp", "tcp6", "udp", "udp6")
_FOLDERS = ("out", "tmp", "dev/shm")
"""The folders of the sandbox that a script can write to."""


class ProcessUsage(NamedTuple):
    """What processes hold together; ``files`` counts files and folders in the sandbox's fullest folder."""

    bytes: int
    threads: int
    files: int = 0


class ProcessTree:
    """A process and everything below it.

    A sandbox has its own ``/proc``, and one look at it lists them. Otherwise every process of the machine has to be
    asked for its parent, which is too slow for the fastest fork bombs.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._view: Path | None = None

    def usage(self, most_threads: int, most_bytes: int) -> ProcessUsage:
        """Return what they hold; beyond a limit the figures need not be complete.

        Shared pages count for every process, unless that passes the limit: then each process counts its part (PSS),
        which takes longer to read.
        """
        view, pids = self._below()
        if len(pids) > most_threads:
            return ProcessUsage(0, len(pids))
        processes = [_Process(view / pid) for pid in pids]
        alone = sum(process.tables for process in processes) + (0 if self._view is None else _in_sockets(self._view))
        count = alone + sum(process.pages for process in processes)
        # If the rest alone is too much, the pages need not be read.
        if count > most_bytes >= alone:
            count = alone + sum(process.share() for process in processes)
        return ProcessUsage(
            count, sum(process.threads for process in processes), 0 if self._view is None else _files(self._view)
        )

    def end(self) -> None:
        """Kill them all. In a sandbox the first kill suffices: the kernel ends the whole namespace."""
        below = [] if self._view is not None else self._children(recursive=True)
        self._process.kill()
        for process in below:
            with suppress(psutil.Error):
                process.kill()

    def _children(self, *, recursive: bool) -> list[psutil.Process]:
        with suppress(psutil.Error):
            return psutil.Process(self._process.pid).children(recursive=recursive)
        return []

    def _below(self) -> tuple[Path, list[str]]:
        if self._view is None:
            self._view = self._own_proc()
        if self._view is not None:
            with suppress(OSError):
                return self._view, [name for name in os.listdir(self._view) if name.isdigit()]  # noqa: PTH208
        return _PROC, [str(process.pid) for process in self._children(recursive=True)]

    def _own_proc(self) -> Path | None:
        """Return the ``/proc`` of the namespace below the process, once it differs from ours."""
        with suppress(OSError):
            for child in self._children(recursive=False):
                view = _PROC / str(child.pid) / "root" / "proc"
                if view.stat().st_dev != _PROC.stat().st_dev and (view / "1").is_dir():
                    return view
        return None


def memory_below(pid: int) -> int:
    """Return the resident bytes of everything below a process; shared pages count for each process."""
    current = 0
    with suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error):
                current += child.memory_info().rss
    return current


class _Process:
    """A process as ``/proc`` shows it; unreadable files belong to a process that has ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        fields = _fields(folder / "status")
        self.threads = fields.get("Threads", 0)
        if "VmRSS" not in fields and self.threads > 1:
            # Its first thread has ended: the other threads still show the memory.
            with suppress(OSError):
                for thread in (folder / "task").iterdir():
                    fields = _fields(thread / "status")
                    if "VmRSS" in fields:
                        self._folder = thread
                        break
        self.tables = fields.get("VmPTE", 0) * 1024
        self.pages = sum(fields.get(name, 0) for name in _PAGES) * 1024

    def share(self) -> int:
        """Return the bytes of its private pages and its part of shared ones, or of all if that part cannot be read."""
        fields = _fields(self._folder / "smaps_rollup")
        return sum(fields[name] for name in _SHARED) * 1024 if fields.keys() >= {*_SHARED} else self.pages


def _fields(path: Path) -> dict[str, int]:
    """Return the lines ``name: number`` of a file of ``/proc``."""
    counts: dict[str, int] = {}
    with suppress(OSError):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            with suppress(ValueError, IndexError):
                counts[name] = int(value.split()[0])
    return counts


def _in_sockets(view: Path) -> int:
    """Return the most bytes that the sockets of a namespace can hold.

    A Unix socket holds at most its send buffer, which has a fixed size in the sandbox. Other sockets hold their queues,
    and about as much again for the kernel's record of every packet.
    """
    current = 0
    with suppress(OSError, ValueError):
        size = int((_PROC / "sys/net/core/wmem_default").read_text(encoding="ascii"))
        # The first line names the columns.
        current += ((view / "1/net/unix").read_bytes().count(b"\n") - 1) * size
    for name in _QUEUED:
        with suppress(OSError, ValueError, IndexError):
            for line in (view / "1/net" / name).read_text(encoding="ascii").splitlines()[1:]:
                current += 2 * sum(int(queue, 16) for queue in line.split()[4].split(":"))
    return current


def _files(view: Path) -> int:
    """Return the number of files and folders in the fullest folder that a script can write to."""
    most = 0
    for name in _FOLDERS:
        with suppress(OSError):
            statvfs_result = os.statvfs(view.parent / name)
            most = max(most, statvfs_result.f_files - statvfs_result.f_ffree)
    return most
