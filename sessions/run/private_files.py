"""Keeps run folders, which hold held-out items, readable by their user alone.

Processes that write into run folders call :func:`keep_private` first. Files that a person asks for, such as an export,
get the modes of this person's umask.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

OTHERS = 0o077
"""The permission bits of the group and of others."""
_NAMED = 3
_users: int | None = None


def keep_private() -> None:
    """Make all later files of this process and those it starts readable by their user alone."""
    global _users
    before = os.umask(OTHERS)
    _users = before if _users is None else _users


@contextmanager
def as_the_user_wants() -> Generator[None]:
    """Create files with the modes of the user's umask."""
    before = os.umask(OTHERS if _users is None else _users)
    try:
        yield
    finally:
        os.umask(before)


def warn_of_readers(runs: Iterable[Path]) -> None:
    """Warn in one line on stderr about run folders that other users can open."""
    paths = [run for run in runs if run.is_dir() and run.stat().st_mode & OTHERS]
    if paths:
        more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
        names, what = " ".join(str(run) for run in paths[:_NAMED]), "it" if len(paths) == 1 else "them"
        message = f"other users of this machine can open {names}{more}, and read held-out items there"
        print(f"warning: {message}; `chmod 700 {names}` closes {what}", file=sys.stderr)
