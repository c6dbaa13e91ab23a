"""Identifies the process that claimed a job, whatever happens to process ids and clocks.

A process is known by its id and its start in ticks since the machine started. Its start as a time of day moves when
the clock is set, and then a living wrapper would look lost.
"""

from __future__ import annotations

import json
import os
import platform
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from specs.jobs.job_records import MachineClock
from specs.system.regular_files import read_regular

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def this_process(key: str) -> dict[str, Any]:
    """Return what a claim says of the process that makes it."""
    facts = {"key": key, "pid": os.getpid(), "started": psutil.Process().create_time(), "host": platform.node()}
    ticks, boot = started_ticks(os.getpid()), _boot()
    return facts | ({"ticks": ticks, "boot": boot} if ticks is not None and boot else {})


def is_alive(owner: dict[str, Any]) -> bool:
    """Return whether the process of a claim runs here; raise KeyError, TypeError or ValueError if it names none."""
    pid, started = owner["pid"], owner["started"]
    if isinstance(pid, bool) or not isinstance(pid, int) or not isinstance(started, int | float):
        raise TypeError(f"pid {pid!r}, started {started!r}")
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        if "ticks" in owner and (boot := _boot()):
            return owner.get("boot") == boot and owner["ticks"] == started_ticks(pid)
        return abs(process.create_time() - started) < 1.0
    return False


def read_record(path: Path) -> dict[str, Any] | None:
    """Return a small JSON object; None if the file is missing or holds something else."""
    with suppress(OSError, ValueError):
        result = json.loads(read_regular(path, 1 << 16))
        return result if isinstance(result, dict) else None
    return None


def lives(path: Path) -> bool:
    """Return whether the process that a file names runs."""
    with suppress(KeyError, TypeError, ValueError):
        return is_alive(read_record(path) or {})
    return False


def started_ticks(pid: int) -> int | None:
    """Return a process's start in clock ticks since the machine started; None if the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        # The process name before the last parenthesis may hold anything, parentheses too.
        return int(stat.rpartition(")")[2].split()[19])
    return None


def clock_here() -> MachineClock | None:
    """Return what the clocks of this machine say; None if the system does not tell its starts apart.

    A container reads those of its machine.
    """
    boot = _boot()
    if not boot or not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    return MachineClock(boot=boot, up_s=round(time.clock_gettime(time.CLOCK_BOOTTIME), 3), time=round(time.time(), 3))


def _boot() -> str:
    with suppress(OSError):
        return _BOOT.read_text(encoding="utf-8").strip()
    return ""
