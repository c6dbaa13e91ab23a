"""Runs next to a recipe in its sandbox: sets the limits, runs the script, then sends what it left in ``OUT``.

A script of the standard library only, because Peergate is not mounted. Neither side trusts the recipe. The other side,
``sessions/jobs/sandbox/recipe_job.py``, reads a stream of ``{"path": ..., "size": ...}`` lines, each followed by so
many bytes, and a last line ``{"left_out": ...}``.
"""

from __future__ import annotations

import json
import os
import resource
import stat
import subprocess
import sys
from typing import BinaryIO

DEPTH = 8
"""The limit of the receiving side."""
NICENESS = 10
"""So that anyone who watches over the recipe gets the processor when it wants to end it."""
AFTER_PACKAGES = """
import runpy, sys
_, folder, script = sys.argv
sys.path.insert(0, folder)
sys.argv = [script]
runpy.run_path(script, run_name="__main__")
"""
"""Runs a script that imports from a folder of packages first: an isolated Python reads no PYTHONPATH."""


class TooDeep(Exception):
    """The files cannot be sent."""


def main() -> int:
    """Run the script named in the JSON object that is the only argument."""
    facts = json.loads(sys.argv[1])
    set_limits(facts["limits"])
    os.nice(NICENESS)
    before = ["-c", AFTER_PACKAGES, facts["packages"]] if "packages" in facts else []
    command = [sys.executable, "-I", "-B", "-u", *before, facts["code"]]
    code = subprocess.run(command, stdin=subprocess.DEVNULL, cwd=facts["out"], check=False).returncode
    if code != 0:
        # As a shell reports it: an exit code cannot be negative.
        return code if code > 0 else 128 - code
    # What is sent is not a file, so its length is not limited here but where it arrives.
    try:
        with os.fdopen(facts["send"], "wb") as stream:
            send(facts["out"], stream)
    except BrokenPipeError:
        # The other side wants no more and says why.
        return 1
    except TooDeep as error:
        print(f"recipe: {error}", file=sys.stderr)
        return 1
    return 0


def set_limits(limits: dict[str, int]) -> None:
    """Set each named limit, soft and hard, for this process and all it starts."""
    for name, most in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def send(out: str, stream: BinaryIO) -> None:
    """Write every regular file below a folder to the stream; count links, pipes and devices; raises TooDeep."""
    left_out = 0
    waiting = [(out, 0)]
    while waiting:
        folder, depth = waiting.pop()
        if depth > DEPTH:
            raise TooDeep(f"it left folders nested more than {DEPTH} deep")
        try:
            with os.scandir(folder) as scandir_iterator:
                entries = sorted(scandir_iterator, key=lambda entry: entry.name)
        except OSError:
            left_out += 1
            continue
        waiting += [(entry.path, depth + 1) for entry in reversed(entries) if entry.is_dir(follow_symlinks=False)]
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                left_out += not send_file(entry.path, os.path.relpath(entry.path, out), stream)
    stream.write(json.dumps({"left_out": left_out}).encode() + b"\n")
    stream.flush()


def send_file(path: str, name: str, stream: BinaryIO) -> bool:
    """Write a file to the stream under a name; return False if it is not a regular file or cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    with os.fdopen(handle, "rb") as source:
        stat_result = os.fstat(handle)
        if not stat.S_ISREG(stat_result.st_mode):
            return False
        stream.write(json.dumps({"path": name, "size": stat_result.st_size}).encode() + b"\n")
        copy(source, stream, stat_result.st_size)
    return True


def copy(source: BinaryIO, stream: BinaryIO, size: int) -> None:
    """Copy exactly ``size`` bytes; raises EOFError if the file became shorter."""
    while size > 0:
        piece = source.read(min(size, 1 << 20))
        if not piece:
            raise EOFError("a file became shorter while it was sent")
        stream.write(piece)
        size -= len(piece)


if __name__ == "__main__":
    raise SystemExit(main())
