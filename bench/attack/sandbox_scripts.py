"""The scripts of ``bench/attack/sandbox.py``; they run in the sandbox, with the standard library only."""

from __future__ import annotations

import json

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
        os.write(writing, b"x")
        time.sleep(5)

    threading.Thread(target=hold).start()
    libc.syscall(EXIT, 0)


reading, writing = os.pipe()
for place in range(6):
    if os.fork() == 0:
        work(place)
os.close(writing)
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
memory = os.open("/proc/self/mem", os.O_RDWR)
for _ in range(HELD // PIECE):
    place = libc.mmap(None, PIECE, 1, 0x22, -1, 0)
    for page in range(0, PIECE, 4096):
        os.pwrite(memory, b"x", place + page)
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
        for end in pair:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
            end.setblocking(False)
            try:
                while end.send(bytes(4096)):
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
        client = socket.create_connection(("127.0.0.1", 5000 + place))
        other, _ = server.accept()
        for end in (client, other):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
            end.setblocking(False)
            kept.append(end)
        for end in (client, other):
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
    if len([name for name in os.listdir("/proc") if name.isdigit()]) > 200:
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
for name in os.listdir(f"/proc/{os.getppid()}/fd"):
    try:
        pipe = os.open(f"/proc/{os.getppid()}/fd/{name}", os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        continue
    os.write(pipe, line)
""",
    "names that are too long": """\
open("n" * 250, "w").close()
""",
} | {f"refused: a name with {ascii(mark)}": f"open({f'a{mark}b'!r}, 'w').close()" for mark in json.loads(_NAMES)}
