"""A disk that is full or cannot be written: one error, wherever it shows, and the session goes on when there is room.

Every write of Peergate is whole or absent (a transaction, or a file that is renamed into place), so nothing has to be
repaired. Not covered: what a job writes itself. A job that could not write ends, or is lost, and is judged as such.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from specs.errors import DiskUnwritable

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
_SQLITE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)


def no_room(error: BaseException, where: str = "") -> DiskUnwritable | None:
    """Return the error to tell when something could not be written for want of room; None for any other error."""
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        where, why = str(error.filename or where), error.strerror
    elif isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in _SQLITE:
        why = str(error)
    else:
        return None
    hint = "make room or make it writable, then `peergate resume` goes on; nothing is half-written"
    return DiskUnwritable(f"cannot be written: {why}", where=where, hint=hint)


@contextmanager
def telling_no_room(where: Path) -> Generator[None]:
    """Tell want of room inside as :class:`specs.errors.DiskUnwritable`."""
    try:
        yield
    except (OSError, sqlite3.OperationalError) as error:
        told = no_room(error, str(where))
        if told is None:
            raise
        raise told from error
