"""System calls and sockets that a script in the sandbox must not have, and the script that tries them all."""

from __future__ import annotations

FAMILIES = (1, 2, 10)
"""AF_UNIX, AF_INET, AF_INET6: in a namespace without a way out."""
MOST_FAMILIES = 50

CALLS: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "io_uring_setup": (425, 425, (4, -1)),
    "io_uring_enter": (426, 426, (-1, 0)),
    "io_uring_register": (427, 427, (-1, 0)),
    "userfaultfd": (323, 282, (1,)),
    "ptrace": (101, 117, (0, 0, 0, 0)),
    "process_vm_readv": (310, 270, (-1, 0, 0, 0, 0, 0)),
    "process_vm_writev": (311, 271, (-1, 0, 0, 0, 0, 0)),
    "process_madvise": (440, 440, (-1, 0, 0, 0, 0)),
    "pidfd_getfd": (438, 438, (-1, 0, 0)),
    "kcmp": (312, 272, (1, 1, 0, 0, 0)),
    "keyctl": (250, 219, (0, -3, 1)),
    "add_key": (248, 217, (0, 0, 0, 0, -3)),
    "request_key": (249, 218, (0, 0, 0, 0)),
    "bpf": (321, 280, (0, 0, 0)),
    "perf_event_open": (298, 241, (0, 0, -1, -1, 0)),
    "memfd_create": (319, 279, (-1, 0)),
    "memfd_secret": (447, 447, (0,)),
    "shmget": (29, 194, (0, 4096, 0o1600)),
    "semget": (64, 190, (0, 1, 0o1600)),
    "msgget": (68, 186, (0, 0o1600)),
    "mq_open": (240, 180, (-1, 0, 0, 0)),
    "vmsplice": (278, 75, (-1, 0, 0, 0)),
    "splice": (275, 76, (-1, 0, -1, 0, 1, 0)),
    "tee": (276, 77, (-1, -1, 1, 0)),
    "unshare files": (272, 97, (0x400,)),
    "unshare user": (272, 97, (0x10000000,)),
    "setns": (308, 268, (-1, 0)),
    "clone3": (435, 435, (-1, 8)),
    "mount": (165, 40, (0, -1, 0, 0, 0)),
    "umount2": (166, 39, (-1, 0)),
    "pivot_root": (155, 41, (-1, -1)),
    "chroot": (161, 51, (-1,)),
    "open_tree": (428, 428, (-1, -1, 0)),
    "move_mount": (429, 429, (-1, -1, -1, -1, 0)),
    "fsopen": (430, 430, (-1, 0)),
    "fsconfig": (431, 431, (-1, 0, 0, 0, 0)),
    "fsmount": (432, 432, (-1, 0, 0)),
    "fspick": (433, 433, (-1, -1, 0)),
    "mount_setattr": (442, 442, (-1, -1, 0, 0, 0)),
    "name_to_handle_at": (303, 264, (-1, -1, 0, 0, 0)),
    "open_by_handle_at": (304, 265, (-1, -1, 0)),
    "fanotify_init": (300, 262, (0, 0)),
    "quotactl": (179, 60, (-1, 0, 0, 0)),
    "swapon": (167, 224, (-1, 0)),
    "swapoff": (168, 225, (-1,)),
    "reboot": (169, 142, (0, 0, 0, 0)),
    "syslog": (103, 116, (10, 0, 0)),
    "acct": (163, 89, (-1,)),
    "kexec_load": (246, 104, (0, 0, 0, 0)),
    "kexec_file_load": (320, 294, (-1, -1, 0, 0, 0)),
    "init_module": (175, 105, (0, 0, 0)),
    "finit_module": (313, 273, (-1, 0, 0)),
    "delete_module": (176, 106, (-1, 0)),
    # MAP_SHARED | MAP_ANONYMOUS, the same with MAP_SHARED_VALIDATE, MAP_PRIVATE with MAP_HUGETLB; all writable.
    "mmap shared": (9, 222, (0, 4096, 3, 0x21, -1, 0)),
    "mmap shared validate": (9, 222, (0, 4096, 3, 0x23, -1, 0)),
    "mmap huge pages": (9, 222, (0, 1 << 21, 3, 0x40022, -1, 0)),
    "ioctl TIOCSTI": (16, 29, (-1, 0x5412, 0)),
    "ioctl TIOCSTI, high bits set": (16, 29, (-1, 0xFF00005412, 0)),
    "ioctl TIOCLINUX": (16, 29, (-1, 0x541C, 0)),
    "x32": (0x40000000 | 39, 0x40000000 | 39, ()),
} | {
    # With SIGCHLD; a child that comes of it ends at once.
    f"clone {name}": (56, 220, (flag | 17, 0, 0, 0, 0))
    for name, flag in {
        "user": 0x10000000,
        "pid": 0x20000000,
        "net": 0x40000000,
        "ipc": 0x08000000,
        "uts": 0x04000000,
        "cgroup": 0x02000000,
        "mount": 0x00020000,
    }.items()
}
"""Number on x86_64 and on arm64, and arguments with which nothing is changed where the call comes through."""

_CALLS = """\
import ctypes, errno, json, os, socket
libc, results = ctypes.CDLL(None, use_errno=True), {{}}
libc.syscall.restype = ctypes.c_long


def answer(number, *arguments):
    ctypes.set_errno(0)
    returned = libc.syscall(*(ctypes.c_long(value) for value in (number, *arguments)))
    if number == {clone} and returned == 0:
        os._exit(0)
    return "came through" if returned >= 0 else errno.errorcode[ctypes.get_errno()]


for name, (number, arguments) in {calls}.items():
    results[name] = answer(number, *arguments)
for family in {families}:
    for call, number in (("socket", {socket}), ("socketpair", {pair})):
        outcomes = {{answer(number, family, kind, 0, 0) for kind in (1, 2, 3, 5)}}
        results[f"{{call}} of family {{family}}"] = outcomes.pop() if len(outcomes) == 1 else " ".join(sorted(outcomes))
for name, family, address in (("abstract socket", 1, "\\0" + {abstract!r}), ("socket in a file", 1, {path!r}),
                              ("tcp to the machine", 2, ("127.0.0.1", {port})), ("tcp outside", 2, ("192.0.2.1", 80))):
    with socket.socket(family) as client:
        client.settimeout(2)
        try:
            client.connect(address)
            results[name] = "connected"
        except OSError:
            results[name] = "outside"
results["/dev/zero"] = "opened"
try:
    os.close(os.open("/dev/zero", os.O_RDWR))
except PermissionError:
    results["/dev/zero"] = "EPERM"
json.dump(results, open("rows.jsonl", "w"))
"""


def calls_script(machine: str, names: list[str], families: list[int], servers: tuple[str, str, int]) -> str:
    """Return a script that makes these calls and sockets, and connects to servers outside."""
    column = 0 if machine == "x86_64" else 1
    calls = {name: (CALLS[name][column], CALLS[name][2]) for name in names}
    numbers = {"clone": (56, 220), "socket": (41, 198), "pair": (53, 199)}
    abstract, path, port = servers
    return _CALLS.format(
        calls=calls,
        families=families,
        abstract=abstract,
        path=path,
        port=port,
        **{name: pair[column] for name, pair in numbers.items()},
    )
