"""Reads files that a job writes. The job may put anything in their place, so no link is followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


class NotReadable(OSError):
    """The file is missing, or is not a regular file of the job."""


@contextmanager
def open_file(path: Path) -> Generator[BinaryIO]:
    """Open a file in a folder that a job writes, or raise NotReadable.

    Neither the file nor its folder may be a link, and the file must be a regular one with one name: a second name could
    be that of a file outside of the job.
    """
    folder = -1
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        # Without blocking: opening a pipe waits for its writer.
        file = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError as error:
        missing = folder < 0 or isinstance(error, FileNotFoundError)
        raise NotReadable(f"{path.name} does not exist yet" if missing else _not_a_file(path)) from error
    finally:
        if folder >= 0:
            os.close(folder)
    stat_result = os.fstat(file)
    if not stat.S_ISREG(stat_result.st_mode) or stat_result.st_nlink != 1:
        os.close(file)
        raise NotReadable(_not_a_file(path))
    with os.fdopen(file, "rb") as handle:
        yield handle


def _not_a_file(path: Path) -> str:
    return f"{path.name} is not a file of the job"


def is_own_file(path: Path) -> bool:
    """Return whether a path is a regular file that :func:`open_file` opens."""
    try:
        with open_file(path):
            return True
    except NotReadable:
        return False


def read_end(path: Path, most: int) -> tuple[bytes, bool]:
    """Return at most so many last bytes of a job's file, and whether that is all of it, or raise NotReadable."""
    with open_file(path) as handle:
        size = os.fstat(handle.fileno()).st_size
        handle.seek(max(0, size - most))
        return handle.read(most), size <= most
