"""Processes a job left behind: found by a variable that all of them inherit, whatever group or session they went to.

When a wrapper is killed, the kernel ends the stage with it, and not what the stage had started. A data loader that
goes on would still write into the folder of a job that counts as lost, and hold memory of the attempt after it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

VARIABLE = "PEERGATE_JOB"
"""Holds the job folder. What is in a sandbox does not have it: that ends with its first process."""
WAIT_S = 5.0
_PROC = Path("/proc")


def mark(folder: Path) -> dict[str, str]:
    """Return the variable for the processes of a job."""
    return {VARIABLE: str(folder.resolve())}


def end_with_parent(parent: int, number: signal.Signals) -> None:
    """Have the kernel send this process a signal when its parent is gone: a lost job must not go on spending."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, number)
        # The parent may have gone before the kernel was told.
        if os.getppid() != parent:
            os._exit(1)


def left_behind(folder: Path) -> list[psutil.Process]:
    """Return the processes of a job that run on this machine and that we may look at, but not this one."""
    wanted = f"{VARIABLE}={folder.resolve()}".encode()
    found: list[psutil.Process] = []
    with suppress(OSError):
        for path in _PROC.iterdir():
            if path.name.isdigit() and int(path.name) != os.getpid():
                with suppress(OSError, psutil.Error):
                    # The process before the look: if its id is given to another one meanwhile, it is not signalled.
                    process = psutil.Process(int(path.name))
                    if wanted in (path / "environ").read_bytes().split(b"\0"):
                        found.append(process)
    return found


def end_left_behind(folder: Path, wait_s: float = WAIT_S) -> int:
    """Kill what a job left behind, and what that starts meanwhile; return how many processes it was."""
    ended: set[int] = set()
    until = time.monotonic() + wait_s
    while processes := [one for one in left_behind(folder) if one.is_running()]:
        for one in processes:
            with suppress(psutil.Error):
                one.kill()
                ended.add(one.pid)
        psutil.wait_procs(processes, timeout=0.2)
        if time.monotonic() > until:
            break
    return len(ended)
