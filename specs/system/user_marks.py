"""What this user has agreed to, kept in the user's own state folder: nothing in a run or workspace can say it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Literal

Kind = Literal["task_files", "databases"]


def keep_mark(kind: Kind, name: str) -> None:
    """Keep a mark. Where the folder cannot be written, only the process that asks knows of it."""
    with suppress(OSError):
        path = _place(kind, name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch()


def has_mark(kind: Kind, name: str) -> bool:
    """Return whether this user has kept a mark."""
    return _place(kind, name).is_file()


def _place(kind: Kind, name: str) -> Path:
    # Slow, and not needed by who keeps no marks.
    import platformdirs

    return platformdirs.user_state_path("peergate") / kind / name
