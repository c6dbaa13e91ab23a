"""A folder that appears complete under its name or not at all, however many processes make it at the same time."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

PARTIAL = ".partial"
_ABANDONED_S = 60.0
"""A folder without an owner is younger than this only between its making and its lock."""


@contextmanager
def new_folder(target: Path, *, mode: int = 0o777) -> Generator[Path]:
    """Yield a folder next to ``target`` that gets its name when the context ends without an error.

    Otherwise nothing is left. What killed processes left for the same target is removed.

    Raises:
        FileExistsError: the target already exists, or is when the folder is complete: another process was first.
        OSError: the folder cannot be made.
    """
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "already exists", str(target))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # A file stands where a folder has to be.
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(target.parent)) from error
    _remove_abandoned(target)
    partial = target.with_name(f".{target.name}.{secrets.token_hex(8)}{PARTIAL}")
    partial.mkdir(mode=mode)
    owner = os.open(partial, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # Not every network disk has locks: then nothing is removed as abandoned.
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield partial
        _rename(partial, target)
    finally:
        os.close(owner)
        shutil.rmtree(partial, ignore_errors=True)


def _rename(partial: Path, target: Path) -> None:
    """Give the folder its name; raises FileExistsError if it is taken."""
    try:
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "already exists", str(target))
        # A folder that was made since then and holds something is not replaced.
        partial.rename(target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise FileExistsError(errno.EEXIST, "already exists", str(target)) from error
        raise


def _remove_abandoned(target: Path) -> None:
    start = f".{target.name}."
    for path in target.parent.iterdir():
        if not (path.name.startswith(start) and path.name.endswith(PARTIAL)):
            continue
        with suppress(OSError):
            if time.time() - path.lstat().st_ctime < _ABANDONED_S:
                continue
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(handle)
