"""Processes as the kernel lists them: which live, whose children they are, and which are wrappers of a session."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
WRAPPERS = (b"sessions.jobs.transfer.remote_entry", b"sessions.jobs.wrapper")
"""Modules that are a wrapper, or become one."""


def is_alive(pid: int) -> bool:
    """Return whether a process is there and no zombie."""
    with suppress(OSError, IndexError):
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        return stat.rpartition(")")[2].split()[0] != "Z"
    return False


def children(pid: int) -> list[int]:
    """Return the children of a process that live."""
    with suppress(OSError, ValueError):
        lines = (_PROC / str(pid) / "task" / str(pid) / "children").read_text(encoding="ascii").split()
        return [int(text) for text in lines if is_alive(int(text))]
    return []


def wrappers(ground: Path) -> list[int]:
    """Return the wrappers of the sessions below a folder, anyone who started them: their command lines name it."""
    below = f"{ground}/".encode()
    results: list[int] = []
    for process in _PROC.iterdir():
        if not process.name.isdigit():
            continue
        with suppress(OSError):
            line = (process / "cmdline").read_bytes()
            if below not in line:
                continue
            # A shell's command is one word, which is none of the modules.
            words = line.split(b"\0")
            if any(module in words for module in WRAPPERS) and is_alive(int(process.name)):
                results.append(int(process.name))
    return results
