"""The scripts of ``bench/attack/sandbox.py``; they run in the sandbox, with the standard library only."""

from __future__ import annotations

import json

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
libc, found = ctypes.CDLL(None, use_errno=True), {{}}
libc.syscall.restype = ctypes.c_long


def answer(number, *given):
    ctypes.set_errno(0)
    came = libc.syscall(*(ctypes.c_long(one) for one in (number, *given)))
    if number == {clone} and came == 0:
        os._exit(0)
    return "came through" if came >= 0 else errno.errorcode[ctypes.get_errno()]


for name, (number, given) in {calls}.items():
    found[name] = answer(number, *given)
for family in {families}:
    for call, number in (("socket", {socket}), ("socketpair", {pair})):
        came = {{answer(number, family, kind, 0, 0) for kind in (1, 2, 3, 5)}}
        found[f"{{call}} of family {{family}}"] = came.pop() if len(came) == 1 else " ".join(sorted(came))
for name, family, address in (("abstract socket", 1, "\\0" + {abstract!r}), ("socket in a file", 1, {path!r}),
                              ("tcp to the machine", 2, ("127.0.0.1", {port})), ("tcp outside", 2, ("192.0.2.1", 80))):
    with socket.socket(family) as one:
        one.settimeout(2)
        try:
            one.connect(address)
            found[name] = "connected"
        except OSError:
            found[name] = "outside"
found["/dev/zero"] = "opened"
try:
    os.close(os.open("/dev/zero", os.O_RDWR))
except PermissionError:
    found["/dev/zero"] = "EPERM"
json.dump(found, open("rows.jsonl", "w"))
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


BEGIN = """\
import ctypes, json, mmap, os, signal, socket, sys, threading, time
HELD, PIECE = {held} << 20, 8 << 20
libc = ctypes.CDLL(None, use_errno=True)
kept = []


def touch(memory, step=4096):
    for place in range(0, len(memory), step):
        memory[place] = 1


def won():
    # Held for longer than anybody needs to notice it.
    time.sleep(1)
    json.dump({{"held": True}}, open("/out/rows.jsonl", "w"))
    os.kill(0, 0)


def children(number, work):
    # Each does its part and stays.
    reading, writing = os.pipe()
    for place in range(number):
        if os.fork() == 0:
            work(place)
            os.write(writing, b"x")
            time.sleep(5)
            os._exit(0)
    os.close(writing)
    done = b""
    while len(done) < number:
        piece = os.read(reading, number)
        if not piece:
            sys.exit(5)
        done += piece


"""

HOGS: dict[str, str] = {
    "memory shared and let go of": """\
for _ in range(HELD // PIECE):
    memory = mmap.mmap(-1, PIECE)
    touch(memory)
    memory.madvise(mmap.MADV_DONTNEED)
    kept.append(memory)
won()
""",
    "memory of /dev/zero let go of": """\
zero = os.open("/dev/zero", os.O_RDWR)
for _ in range(HELD // PIECE):
    memory = mmap.mmap(zero, PIECE)
    touch(memory)
    memory.madvise(mmap.MADV_DONTNEED)
    kept.append(memory)
won()
""",
    "memory of many processes": """\
def work(place):
    kept.append(bytearray(HELD // 8))
    touch(kept[-1])


children(8, work)
won()
""",
    "memory of processes whose first thread has ended": """\
EXIT = 60 if os.uname().machine == "x86_64" else 93


def work(place):
    threading.stack_size(1 << 16)

    def hold():
        time.sleep(0.2)
        kept.append(bytearray(HELD // 6))
        touch(kept[-1])
        os.write(told, b"x")
        time.sleep(5)

    threading.Thread(target=hold).start()
    libc.syscall(EXIT, 0)


reading, told = os.pipe()
for place in range(6):
    if os.fork() == 0:
        work(place)
os.close(told)
done = b""
while len(done) < 6:
    piece = os.read(reading, 6)
    if not piece:
        sys.exit(5)
    done += piece
won()
""",
    "memory as a stack": """\
for _ in range(HELD // PIECE):
    kept.append(mmap.mmap(-1, PIECE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100))
    touch(kept[-1])
won()
""",
    "memory made writable afterwards": """\
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
one = os.open("/proc/self/mem", os.O_RDWR)
for _ in range(HELD // PIECE):
    place = libc.mmap(None, PIECE, 1, 0x22, -1, 0)
    for page in range(0, PIECE, 4096):
        os.pwrite(one, b"x", place + page)
won()
""",
    "page tables": """\
def work(place):
    far = mmap.mmap(-1, HELD // 12 // 4096 << 21, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=1)
    try:
        far.madvise(15)
    except OSError:
        pass
    for place in range(0, len(far), 1 << 21):
        far[place]
    kept.append(far)


children(12, work)
won()
""",
    "huge pages in pipes": """\
class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


for _ in range(HELD // (16 << 21)):
    reading, writing = os.pipe()
    kept.append((reading, writing))
    for _ in range(16):
        memory = mmap.mmap(-1, 2 << 21, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(14)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        start += -start % (1 << 21)
        ctypes.memset(start, 1, 1 << 21)
        if libc.vmsplice(writing, ctypes.byref(Piece(start, 1)), ctypes.c_size_t(1), 0) != 1:
            sys.exit("refused")
        memory.madvise(mmap.MADV_DONTNEED)
won()
""",
    "Unix sockets": """\
def work(place):
    for _ in range(100):
        pair = socket.socketpair()
        kept.append(pair)
        for one in pair:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
            one.setblocking(False)
            try:
                while one.send(bytes(4096)):
                    pass
            except BlockingIOError:
                pass


children(14, work)
won()
""",
    "TCP sockets": """\
def work(place):
    server = socket.create_server(("127.0.0.1", 5000 + place))
    for _ in range(60):
        one = socket.create_connection(("127.0.0.1", 5000 + place))
        other, _ = server.accept()
        for end in (one, other):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
            end.setblocking(False)
            kept.append(end)
        for end in (one, other):
            try:
                while end.send(bytes(1 << 16)):
                    pass
            except BlockingIOError:
                pass


children(14, work)
won()
""",
    "processes": """\
end = time.time() + 3
while time.time() < end:
    try:
        os.fork()
    except OSError:
        pass
    if len([one for one in os.listdir("/proc") if one.isdigit()]) > 200:
        won()
        os.kill(-1, 9)
""",
    "threads": """\
threading.stack_size(1 << 16)
for _ in range(200):
    threading.Thread(target=time.sleep, args=(3,), daemon=True).start()
won()
os._exit(0)
""",
} | {
    f"{sort} in {folder}": f"""\
def fill(place):
    os.mkdir(f"{folder}/{{place}}")
    for number in range(4000):
        name = f"{folder}/{{place}}/{{number}}"
        {make}


children(10, fill)
won()
import shutil
for place in range(10):
    shutil.rmtree(f"{folder}/{{place}}")
"""
    for sort, make in {
        "small files": "os.close(os.open(name, os.O_CREAT))",
        "links": "os.symlink('x', name)",
        "folders": "os.mkdir(name)",
        "pipes": "os.mkfifo(name)",
    }.items()
    for folder in ("/out", "/tmp", "/dev/shm")
}
"""Scripts that end with a row if they have held what they must not."""

_NAMES = json.dumps(["\n", "\r", "\x1b[2J", "\x07", "\x7f", "\u202e", "\u200b", "\u2028", "\udcff", "\\", "\x85"])
OUTPUTS: dict[str, str] = {
    "links to what is outside": """\
import os
for number, place in enumerate(("/inputs/rows", "/etc/passwd", "/proc/self/environ", "..", "/proc/1/root", "/code")):
    os.symlink(place, f"link{number}")
os.makedirs("deep")
os.symlink("../../../../secret", "deep/secret")
open("kept", "w").write("kept")
""",
    "a link put in a file's place while it is sent": """\
import os, threading, time
open("a", "w").write("kept")
if os.fork() == 0:
    os.setsid()
    while True:
        for make in (lambda: os.symlink("/inputs/rows", "x"), lambda: open("x", "w").close()):
            make()
            os.rename("x", "a")
""",
    "hard links": """\
import os
open("a", "wb").write(b"x" * 4_000_000)
for number in range(500):
    os.link("a", f"b{number}")
""",
    "a hard link to an input": """\
import os
for place in ("/inputs/rows", "/code/recipe.py", "/usr/bin/env"):
    try:
        os.link(place, "got")
        open("got.txt", "w").write("secret")
    except OSError:
        pass
""",
    "pipes, sockets and devices": """\
import os, socket, stat
os.mkfifo("pipe")
socket.socket(socket.AF_UNIX).bind("socket")
for kind, major, minor in ((stat.S_IFBLK, 254, 0), (stat.S_IFCHR, 1, 1)):
    try:
        os.mknod(f"device{minor}", kind | 0o600, os.makedev(major, minor))
        open("got.txt", "w").write("secret")
    except OSError:
        pass
""",
    "refused: sparse files": """\
import os
for number in range(9):
    os.truncate(os.open(f"big{number}", os.O_CREAT | os.O_RDWR), 8_000_000)
""",
    "refused: a file longer than any": """\
import os
os.truncate(os.open("big", os.O_CREAT | os.O_RDWR), 1 << 50)
""",
    "refused: many small files": """\
import os
for number in range(10_001):
    open(f"{number}", "w").close()
""",
    "refused: many folders with one file each": """\
import os
for number in range(4_000):
    os.makedirs(f"{number}/a/b")
    open(f"{number}/a/b/c", "w").close()
""",
    "refused: folders three thousand deep": """\
import os
for _ in range(3_000):
    os.mkdir("d")
    os.chdir("d")
open("bottom", "w").write("x")
""",
    "refused: many folders deep, with short paths": """\
import os
os.makedirs("/".join("abcdefghijkl"))
open("/".join("abcdefghijkl") + "/x", "w").close()
""",
    "refused: a stream of the script's own": """\
import json, os
line = json.dumps({"path": "../secretSEED", "size": 6}).encode() + b"\\nsecret"
for one in os.listdir(f"/proc/{os.getppid()}/fd"):
    try:
        pipe = os.open(f"/proc/{os.getppid()}/fd/{one}", os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        continue
    os.write(pipe, line)
""",
    "names that are too long": """\
open("n" * 250, "w").close()
""",
} | {f"refused: a name with {ascii(mark)}": f"open({f'a{mark}b'!r}, 'w').close()" for mark in json.loads(_NAMES)}
