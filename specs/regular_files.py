"""Read files that may be anything: opening a FIFO blocks, a device may never end."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file, or a link to one; never blocks. Raises OSError for a folder, FIFO, socket or device."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: Path) -> bytes:
    """Return the bytes of a file; errors as in :func:`open_regular`."""
    with open_regular(path) as handle:
        return handle.read()
