"""Opens files that may be anything: whatever a person or a job names is opened here, as a regular file of limited size.

Opening a FIFO blocks, a device may never end, and a sparse file holds more bytes than memory.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path

MOST_BYTES = 1 << 30
"""The limit for a file that is read as a whole, unless its reader names another."""


def open_regular(path: Path | str, most: int | None = None) -> io.BufferedReader:
    """Open a regular file, or a link to one; never blocks.

    Raises OSError for a folder, FIFO, socket or device, and for a file of more than ``most`` bytes.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if most is not None and status.st_size > most:
            raise OSError(errno.EOVERFLOW, f"larger than {most:,} bytes", str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: Path | str, most: int = MOST_BYTES) -> bytes:
    """Return the bytes of a file; errors as in :func:`open_regular`, and for one of more than ``most`` bytes."""
    with open_regular(path, most) as handle:
        # A read makes room for as many bytes as it asks for.
        size = os.fstat(handle.fileno()).st_size
        if len(data := handle.read(size + 1)) != size:
            # Files below /proc have no size, and a file written meanwhile has another.
            data += handle.read(most + 1 - len(data))
        if len(data) > most:
            raise OSError(errno.EOVERFLOW, f"larger than {most:,} bytes", str(path))
        return data
