"""Who claimed a job, in terms that neither a reused process id nor a changed clock can confuse.

A process is known by its id and when it was started, counted in ticks since the machine was started: the same moment
as a time of day moves when the clock is set, and then a wrapper that lives would look like a lost one.
"""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def this_process(key: str) -> dict[str, Any]:
    """Return what a claim says of the process that makes it."""
    told = {"key": key, "pid": os.getpid(), "started": psutil.Process().create_time(), "host": platform.node()}
    ticks, boot = started_ticks(os.getpid()), _boot()
    return told | ({"ticks": ticks, "boot": boot} if ticks is not None and boot else {})


def is_alive(owner: dict[str, Any]) -> bool:
    """Say whether the process of a claim still runs on this machine. Claims of older wrappers have no ticks.

    Raises:
        KeyError: the claim does not name a process.
        TypeError: what it names is none.
        ValueError: the same.
    """
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


def started_ticks(pid: int) -> int | None:
    """Return when a process was started, in clock ticks since the machine was; None where the system does not say."""
    try:
        # The name before it may hold anything, parentheses too.
        return int(
            (Path("/proc") / str(pid) / "stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()[19]
        )
    except (OSError, ValueError, IndexError):
        return None


def _boot() -> str:
    with suppress(OSError):
        return _BOOT.read_text(encoding="utf-8").strip()
    return ""
