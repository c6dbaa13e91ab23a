"""Reports a full or unwritable disk as one error; the session continues when there is room.

Every write of Peergate is whole or absent (a transaction, or a file that is renamed into place), so no repair is
needed. A job that cannot write ends, or is lost, and is judged as such.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from specs.system.errors import BlockedError, DiskUnwritable

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
_NO_ACCESS = (
    *(errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG),
    # What specs/system/regular_files.py refuses.
    *(errno.EOVERFLOW, errno.EINVAL, errno.ENXIO),
)
_SQLITE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)


def no_room(error: BaseException, where: str = "") -> DiskUnwritable | None:
    """Return the error to report for a write without room or permission to write; None for any other error."""
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        where, why = str(error.filename or where), error.strerror
    elif isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in _SQLITE:
        why = str(error)
    else:
        return None
    hint = "make room or make it writable, then `peergate resume` continues; nothing is half-written"
    return DiskUnwritable(f"cannot be written: {why}", where=where, hint=hint)


def no_access(error: BaseException) -> BlockedError | None:
    """Return the error to report for a refused or mistaken file or folder; None for any other error."""
    if isinstance(error, RuntimeError):
        # `Path.resolve` says so of links that lead to themselves.
        error = error.__context__ or error
    if not isinstance(error, OSError) or error.errno not in _NO_ACCESS:
        return None
    return BlockedError(f"cannot be read or written: {error.strerror}", where=str(error.filename or ""))


@contextmanager
def telling_no_place(where: Path) -> Generator[None]:
    """Report every failed write to a place of the user's choice as :class:`specs.system.errors.DiskUnwritable`."""
    try:
        yield
    except OSError as error:
        hint = "name another place, or make this one writable; nothing was left there"
        raise DiskUnwritable(f"cannot be written: {error.strerror or error}", where=str(where), hint=hint) from error


@contextmanager
def telling_no_room(where: Path) -> Generator[None]:
    """Report a full disk as :class:`specs.system.errors.DiskUnwritable`."""
    try:
        yield
    except (OSError, sqlite3.OperationalError) as error:
        failure = no_room(error, str(where))
        if failure is None:
            raise
        raise failure from error
