"""Starts detached processes, and ends those a job left behind.

When a wrapper is killed, the kernel ends the stage with it, but not the processes that the stage had started. A data
loader that continues would still write into the folder of a lost job, and hold memory of the next attempt. A guard
between the two ends them, whatever their environment and session; where it was killed as well, they are known by a
variable that they inherited.
"""

from __future__ import annotations

import ctypes
import os
import resource
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
HAS_GUARD = sys.platform == "linux"
"""Whether a process stands between a wrapper and its stage."""
WAIT_S = 5.0
_PROC = Path("/proc")
_detached: set[subprocess.Popen[bytes]] = set()
"""Processes that outlive the caller: held until they end, because a dropped one is never collected."""


def start_detached(
    words: list[str], log: Path, cwd: Path, env: dict[str, str], stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start a process in its own session, which outlives this one, with its output at the end of a log."""
    with log.open("ab") as out:
        process = subprocess.Popen(words, stdin=stdin, stdout=out, stderr=out, cwd=cwd, env=env, start_new_session=True)
    _detached.difference_update([popen for popen in tuple(_detached) if popen.poll() is not None])
    _detached.add(process)
    return process


def end_with_parent(parent: int, number: signal.Signals) -> None:
    """Have the kernel send this process a signal when its parent ends, so that a lost job stops spending."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, number)
        # The parent may have ended before the request reached the kernel.
        if os.getppid() != parent:
            os.kill(os.getpid(), number)
            os._exit(1)


def take_orphans() -> None:
    """Become the parent of what this process's children leave behind, whatever environment and session that has."""
    if sys.platform == "linux":
        pr_set_child_subreaper = 36
        ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1)


def stand_guard(parent: int) -> None:
    """Put a guard between a wrapper and its stage; to be called by the forked child before it becomes the stage.

    The guard is the process that calls this: all that the stage leaves behind becomes its child. It ends as the stage
    ends; once its own parent has ended, it kills everything below it. Only its child returns, to become the stage,
    which ends with the guard. Without Linux there is none.
    """
    if not HAS_GUARD:
        return
    take_orphans()
    guard = os.getpid()
    stage = os.fork()
    if not stage:
        end_with_parent(guard, signal.SIGKILL)
        return
    code = 1
    try:
        code = _wait_for_stage(parent, stage)
    finally:
        os._exit(code)


def _wait_for_stage(parent: int, stage: int) -> int:
    """Return the exit code of a stage once it has ended; kill what is below this process once its parent ended."""

    def end_all(_number: int, _frame: object) -> None:
        end_descendants()
        os._exit(1)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, end_all)
    end_with_parent(parent, signal.SIGUSR1)
    # What is open here would keep pipes of the stage from ending.
    os.closerange(3, 1 << 16)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    while True:
        pid, status = os.wait()
        if pid == stage:
            break
    if not os.WIFSIGNALED(status):
        return os.waitstatus_to_exitcode(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
    os.kill(os.getpid(), os.WTERMSIG(status))
    return 128 + os.WTERMSIG(status)


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
