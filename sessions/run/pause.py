"""Asking a session that runs elsewhere to pause or to end: a file in its folder, which it looks for at safe places.

The same places see Ctrl-C: between nodes and tool calls, and while it waits for a job, a rate limit or an MCP client.
An answer of a model that is under way is waited for, because it is paid for.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from reviews.trail.store import write_durably
from reviews.trail.tables.open_table import read_entries
from sessions.run.run_layout import TRAIL
from specs.errors import LeaseHeld, PeergateError
from specs.text import plain

PAUSE, CANCEL = "pause", "cancel"
"""Names of the request files in a run folder. A request to pause is taken away when it has been followed."""
HeldT = TypeVar("HeldT")
TELL_EVERY = 5
"""Tries, of a second each, between two lines of progress."""


def ask_for(run: Path, what: str) -> None:
    """Leave a request, in the name of the user; one that is there stays."""
    if not (run / what).exists():
        write_durably(run / what, getpass.getuser().encode())


def asked_by(run: Path) -> str:
    """Return who asks for the pause; the user of this process where nobody did by a file."""
    try:
        return plain((run / PAUSE).read_text(encoding="utf-8", errors="replace"), 100) or getpass.getuser()
    except OSError:
        return getpass.getuser()


def take_back(run: Path) -> None:
    """Take a request to pause away."""
    (run / PAUSE).unlink(missing_ok=True)


@contextmanager
def when_free(
    run: Path, what: str, lease: Callable[[Path], AbstractContextManager[HeldT]], say: Callable[[str], None]
) -> Generator[HeldT]:
    """Ask for something, wait as long as it takes until no process runs the session, and hold its lease.

    Now and then it says where the session is. Whoever breaks the wait off leaves the request standing.
    """
    tries = 0
    with ExitStack() as held:
        while True:
            ask_for(run, what)
            try:
                owned = held.enter_context(lease(run))
                break
            except LeaseHeld:
                if tries % TELL_EVERY == 0:
                    say(f"asked {run.name} to {what}; it does so at the next safe place{_where(run)}")
                tries += 1
        take_back(run)
        yield owned


def _where(run: Path) -> str:
    try:
        newest = read_entries(run / TRAIL)[-1]
    except (PeergateError, OSError, IndexError):
        return ""
    return f" (newest entry: {plain(newest.entry.key, 100)})"
