"""System calls that are refused in the sandbox, as a seccomp filter in the form bubblewrap loads.

Two sorts: memory that belongs to no process and that no one could count (memfd, System V), and parts of the kernel that
a script has no use for and that have often been the way out of a sandbox. Everything else is allowed.

Classic BPF as in seccomp(2) and linux/filter.h; numbers from the kernel's tables for x86_64 and arm64. On any other
machine there is no filter: the namespaces stand alone.
"""

from __future__ import annotations

import platform
import struct

_ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""AUDIT_ARCH of linux/audit.h."""

REFUSED: dict[str, tuple[int, int]] = {
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "pivot_root": (155, 41),
    "open_by_handle_at": (304, 265),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "finit_module": (313, 273),
}
"""Numbers on x86_64 and on arm64."""

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCH = 0, 4
"""Offsets in struct seccomp_data."""
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | 1
"""SECCOMP_RET_ALLOW, _KILL_PROCESS, and _ERRNO with EPERM."""
_X32 = 0x40000000
"""Calls of the x32 ABI have this bit and would go past a list of numbers."""


def program(machine: str | None = None) -> bytes | None:
    """Return the filter for a machine as ``platform.machine()`` names it; None where there is none."""
    machine = machine or platform.machine()
    if machine not in _ARCHES:
        return None
    numbers = sorted(pair[list(_ARCHES).index(machine)] for pair in REFUSED.values())
    # Jumps count the instructions they leave out; the last two return.
    lines = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, _ARCHES[machine]), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    left = len(numbers) + 1
    lines.append((_AT_LEAST, left, 0, _X32))
    for place, number in enumerate(numbers, 1):
        lines.append((_EQUAL, left - place, 0, number))
    lines += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    return b"".join(struct.pack("HBBI", *line) for line in lines)
