"""What Peergate writes is for its user alone: run folders hold held-out items, and other users of a machine may build.

Processes that write into run folders call :func:`keep_private` before anything else. What a person asks to be written
somewhere, such as an export, gets the modes that this person's umask says.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

OTHERS = 0o077
"""The bits of a mode that let the group or others do something."""
_NAMED = 3
_users: int | None = None


def keep_private() -> None:
    """Let nobody else read what this process and those it starts create from now on."""
    global _users
    before = os.umask(OTHERS)
    _users = before if _users is None else _users


@contextmanager
def as_the_user_wants() -> Generator[None]:
    """Create files with the modes that the user's own umask says."""
    before = os.umask(OTHERS if _users is None else _users)
    try:
        yield
    finally:
        os.umask(before)


def warn_of_readers(runs: Iterable[Path]) -> None:
    """Say in one line on stderr which run folders other users can open: of an older umask, or opened up since."""
    found = [run for run in runs if run.is_dir() and run.stat().st_mode & OTHERS]
    if found:
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        names = " ".join(str(run) for run in found[:_NAMED])
        print(
            f"warning: other users of this machine can open {names}{more}, and read held-out items there;"
            f" `chmod 700 {names}` closes {'it' if len(found) == 1 else 'them'}",
            file=sys.stderr,
        )
