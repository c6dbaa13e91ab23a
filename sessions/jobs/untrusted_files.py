"""Reading what a job writes. The job may put anything in the place of its files, so nothing is followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


class NotReadable(OSError):
    """The file is not there, or is none."""


@contextmanager
def open_file(path: Path) -> Generator[BinaryIO]:
    """Open a file in a folder that a job writes.

    Links are not followed, neither in the file's place nor in that of its folder, and nothing but a regular file with
    one name is opened: another name could be that of something outside of the job.

    Raises:
        NotReadable: there is no such file.
    """
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise NotReadable(f"there is no {path.name} yet") from error
    try:
        # Without blocking: opening a pipe waits for whoever writes it.
        file = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except FileNotFoundError as error:
        raise NotReadable(f"there is no {path.name} yet") from error
    except OSError as error:
        raise NotReadable(f"{path.name} is no file of the job") from error
    finally:
        os.close(folder)
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        os.close(file)
        raise NotReadable(f"{path.name} is no file of the job")
    with os.fdopen(file, "rb") as handle:
        yield handle


def is_own_file(path: Path) -> bool:
    """Say whether a path is a regular file that :func:`open_file` opens."""
    try:
        with open_file(path):
            return True
    except NotReadable:
        return False


def read_end(path: Path, most: int) -> tuple[bytes, bool]:
    """Return at most so many last bytes of a job's file, and whether that is all of it.

    Raises:
        NotReadable: there is no such file.
    """
    with open_file(path) as handle:
        size = os.fstat(handle.fileno()).st_size
        handle.seek(max(0, size - most))
        return handle.read(most), size <= most
