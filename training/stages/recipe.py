"""What stands beside a recipe in its sandbox: sets the limits, runs the script, then sends what it left in ``OUT``.

Run as a script, with nothing but the standard library: Peergate itself is not mounted. It trusts the recipe as little
as the other side trusts what it sends. The other side is ``sessions/jobs/recipe.py``, which reads a stream of
``{"path": ..., "size": ...}`` lines, each followed by so many bytes, and a last line ``{"left_out": ...}``.
"""

from __future__ import annotations

import json
import os
import resource
import stat
import subprocess
import sys
from typing import BinaryIO

NICENESS = 10
"""So that whoever watches over the recipe gets the processor when it wants to end it."""


def main() -> int:
    """Run the script named in the JSON object that is the only argument."""
    told = json.loads(sys.argv[1])
    set_limits(told["limits"])
    os.nice(NICENESS)
    code = subprocess.run(
        [sys.executable, "-I", "-B", told["code"]], stdin=subprocess.DEVNULL, cwd=told["out"], check=False
    ).returncode
    if code != 0:
        # As a shell tells it: an exit code cannot be negative.
        return code if code > 0 else 128 - code
    # What is sent is not a file, so its length is not limited here but where it arrives.
    try:
        with os.fdopen(told["send"], "wb") as stream:
            send(told["out"], stream)
    except BrokenPipeError:
        # The other side wants no more and says why.
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
    """Write every regular file below a folder to the stream; links, pipes and devices are counted and left out."""
    left_out = 0
    for folder, folders, files in os.walk(out):
        folders.sort()
        left_out += sum(os.path.islink(os.path.join(folder, name)) for name in folders)  # noqa: PTH114, PTH118
        for name in sorted(files):
            path = os.path.join(folder, name)  # noqa: PTH118
            try:
                handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            except OSError:
                left_out += 1
                continue
            with os.fdopen(handle, "rb") as source:
                found = os.fstat(handle)
                if not stat.S_ISREG(found.st_mode):
                    left_out += 1
                    continue
                header = {"path": os.path.relpath(path, out), "size": found.st_size}
                stream.write(json.dumps(header).encode() + b"\n")
                copy(source, stream, found.st_size)
    stream.write(json.dumps({"left_out": left_out}).encode() + b"\n")
    stream.flush()


def copy(source: BinaryIO, stream: BinaryIO, size: int) -> None:
    """Copy exactly so many bytes.

    Raises:
        EOFError: the file has become shorter meanwhile.
    """
    while size > 0:
        piece = source.read(min(size, 1 << 20))
        if not piece:
            raise EOFError("a file became shorter while it was sent")
        stream.write(piece)
        size -= len(piece)


if __name__ == "__main__":
    raise SystemExit(main())
