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

from specs.errors import Blocked, DiskUnwritable

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
_NO_ACCESS = (errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)
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


def no_access(error: BaseException) -> Blocked | None:
    """Return the error to tell when a file or folder is refused, or is no file or folder; None for any other error."""
    if not isinstance(error, OSError) or error.errno not in _NO_ACCESS:
        return None
    return Blocked(f"cannot be read or written: {error.strerror}", where=str(error.filename or ""))


@contextmanager
def telling_no_place(where: Path) -> Generator[None]:
    """Tell whatever keeps a place of the user's choice from being written as :class:`specs.errors.DiskUnwritable`."""
    try:
        yield
    except OSError as error:
        hint = "name another place, or make this one writable; nothing was left there"
        raise DiskUnwritable(f"cannot be written: {error.strerror or error}", where=str(where), hint=hint) from error


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
