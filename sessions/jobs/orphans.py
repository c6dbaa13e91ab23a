"""Starts detached processes, and ends those a job left behind, by a variable that all of them inherit.

When a wrapper is killed, the kernel ends the stage with it, but not the processes that the stage had started. A data
loader that continues would still write into the folder of a lost job, and hold memory of the next attempt.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

VARIABLE = "PEERGATE_JOB"
"""Holds the job folder. Processes in a sandbox lack it; they end with the sandbox's first process."""
WAIT_S = 5.0
_PROC = Path("/proc")


def detached(words: list[str], log: Path, cwd: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a process in its own session, which outlives this one, with its output at the end of a log."""
    with log.open("ab") as out:
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=cwd, env=env, start_new_session=True
        )


def end_with_parent(parent: int, number: signal.Signals) -> None:
    """Have the kernel send this process a signal when its parent ends, so that a lost job stops spending."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, number)
        # The parent may have ended before the kernel was told.
        if os.getppid() != parent:
            os._exit(1)


def take_orphans() -> None:
    """Become the parent of what this process's children leave behind, whatever environment and session that has."""
    if sys.platform == "linux":
        pr_set_child_subreaper = 36
        ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1)


def end_descendants(wait_s: float = WAIT_S) -> int:
    """Kill every process below this one, and those they start meanwhile; return their number."""
    return _end(lambda: psutil.Process().children(recursive=True), wait_s)


def left_behind(folder: Path) -> list[psutil.Process]:
    """Return the readable processes of a job on this machine, except this one."""
    wanted = f"{VARIABLE}={folder.resolve()}".encode()
    processes: list[psutil.Process] = []
    with suppress(OSError):
        for path in _PROC.iterdir():
            if path.name.isdigit() and int(path.name) != os.getpid():
                with suppress(OSError, psutil.Error):
                    # Made before the look: if the id is given to another process meanwhile, that is not signalled.
                    process = psutil.Process(int(path.name))
                    if wanted in (path / "environ").read_bytes().split(b"\0"):
                        processes.append(process)
    return processes


def end_left_behind(folder: Path, wait_s: float = WAIT_S) -> int:
    """Kill the processes of a job, and those they start meanwhile; return their number."""
    return _end(lambda: left_behind(folder), wait_s)


def _end(find: Callable[[], list[psutil.Process]], wait_s: float) -> int:
    ended: set[int] = set()
    until = time.monotonic() + wait_s
    while processes := [
        process for process in find() if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    ]:
        for process in processes:
            with suppress(psutil.Error):
                process.kill()
                ended.add(process.pid)
        psutil.wait_procs(processes, timeout=0.2)
        if time.monotonic() > until:
            break
    return len(ended)
