"""System calls that are refused in the sandbox, as a seccomp filter in the form bubblewrap loads.

Refused are sockets that no network namespace separates (AF_VSOCK reaches the host of a virtual machine), memory that
cannot be counted, new namespaces, and parts of the kernel that have often been the way out of a sandbox. Classic BPF as
in seccomp(2) and linux/filter.h; numbers from the kernel's tables for x86_64 and arm64, other machines get no sandbox.
"""

from __future__ import annotations

import errno
import platform
import struct

Line = tuple[int, int, int, int]
"""Code, instructions to skip if true and if false, operand."""

_ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""AUDIT_ARCH of linux/audit.h."""

FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10}
"""Sockets that may be made: a namespace without a way out holds all of them."""

REFUSED: dict[str, tuple[int, int]] = {
    # Memory that cannot be counted.
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    # A pipe that was given one page of a huge page holds all of it.
    "vmsplice": (278, 75),
    "splice": (275, 76),
    "tee": (276, 77),
    # Other processes, keys, tracing.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    # Namespaces and mounts.
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    # The machine itself.
    "quotactl": (179, 60),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "syslog": (103, 116),
    "acct": (163, 89),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
}
"""Numbers on x86_64 and on arm64; all of them answer EPERM."""

CLONE3 = (435, 435)
"""Its flags lie in memory, which a filter cannot read. ENOSYS has the C library take ``clone`` instead."""
SOCKETS = {"socket": (41, 198), "socketpair": (53, 199)}
CLONE, MMAP, IOCTL, SETSOCKOPT = (56, 220), (9, 222), (16, 29), (54, 208)
NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWUSER, NEWPID, NEWNET, NEWIPC, NEWUTS, NEWCGROUP, NEWNS of linux/sched.h."""
THREAD = 0x10000
"""CLONE_THREAD."""
FORKS = {"x86_64": (57, 58)}
"""fork and vfork, which arm64 does not have."""
SHARED_ANONYMOUS, HUGE = 0x21, 0x40000
"""MAP_SHARED with MAP_ANONYMOUS stays in memory after the process releases its pages; MAP_HUGETLB is never counted."""
TYPED_FOR_OTHERS = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX put text into a terminal's input."""
SOL_SOCKET, BUFFERS = 1, (7, 8, 32, 33)
"""SO_SNDBUF, SO_RCVBUF and their forcing forms succeed without effect, so that a socket's size is known."""

_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
"""Offsets in struct seccomp_data. Both machines are little-endian: the first half of an argument is its low one."""
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
"""SECCOMP_RET_ALLOW, _KILL_PROCESS and _ERRNO, to which the error number is added."""
_X32 = 0x40000000
"""Calls of the x32 ABI have this bit and would pass a list of numbers."""


def program(machine: str | None = None, *, alone: bool = False) -> bytes | None:
    """Return the filter for a machine as ``platform.machine()`` names it; None if there is none.

    ``alone``: the process may start threads, and no other process.
    """
    machine = machine or platform.machine()
    if machine not in _ARCHES:
        return None
    column = list(_ARCHES).index(machine)
    lines = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, _ARCHES[machine]), _give(_KILL), (_LOAD, 0, 0, _NUMBER)]
    lines += [(_AT_LEAST, 0, 1, _X32), _fail(errno.EPERM)]
    for call in SOCKETS.values():
        lines += _of(call[column], [*_if_equal(0, tuple(FAMILIES.values()), _give(_ALLOW)), _fail(errno.EAFNOSUPPORT)])
    threads = [] if not alone else _unless_bits(0, THREAD)
    lines += _of(CLONE[column], [*_if_bits(0, NEW_NAMESPACES, any_of=True), *threads])
    for number in FORKS.get(list(_ARCHES)[column], ()) if alone else ():
        lines += [(_EQUAL, 0, 1, number), _fail(errno.EPERM)]
    lines += _of(CLONE3[column], [_fail(errno.ENOSYS)])
    lines += _of(MMAP[column], [*_if_bits(3, SHARED_ANONYMOUS), *_if_bits(3, HUGE)])
    lines += _of(IOCTL[column], _if_equal(1, TYPED_FOR_OTHERS, _fail(errno.EPERM)))
    kept_lines = _if_equal(2, BUFFERS, _fail(0))
    lines += _of(SETSOCKOPT[column], [_argument(1), (_EQUAL, 0, len(kept_lines), SOL_SOCKET), *kept_lines])
    for pair in REFUSED.values():
        lines += [(_EQUAL, 0, 1, pair[column]), _fail(errno.EPERM)]
    lines.append(_give(_ALLOW))
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def _give(answer: int) -> Line:
    return (_RETURN, 0, 0, answer)


def _fail(number: int) -> Line:
    return _give(_ERRNO | number)


def _argument(place: int) -> Line:
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * place)


def _of(number: int, body: list[Line]) -> list[Line]:
    """Return the lines for one call, which allow everything that ``body`` does not refuse."""
    body = [*body, _give(_ALLOW)]
    return [(_EQUAL, 0, len(body), number), *body]


def _if_equal(place: int, values: tuple[int, ...], answer: Line) -> list[Line]:
    return [_argument(place), *(line for value in values for line in ((_EQUAL, 0, 1, value), answer))]


def _if_bits(place: int, bits: int, *, any_of: bool = False) -> list[Line]:
    """Refuse the call if an argument has all of these bits, or any of them."""
    requests = (_EQUAL, 1, 0, 0) if any_of else (_EQUAL, 0, 1, bits)
    return [_argument(place), (_AND, 0, 0, bits), requests, _fail(errno.EPERM)]


def _unless_bits(place: int, bits: int) -> list[Line]:
    """Refuse the call unless an argument has all of these bits."""
    return [_argument(place), (_AND, 0, 0, bits), (_EQUAL, 1, 0, bits), _fail(errno.EPERM)]
