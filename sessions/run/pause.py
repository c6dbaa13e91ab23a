"""Asks a session of another process to pause or end: a file in its folder, which it looks for at safe places.

Ctrl-C works at the same places: between nodes and tool calls, and while it waits for a job, a rate limit or an MCP
client. A model's answer that is being computed is waited for, because it is paid for.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TypeVar

from reviews.trail.chain.store import write_durably
from sessions.run.run_history import read_history
from specs.system.errors import LeaseHeld, PeergateError
from specs.system.regular_files import read_regular
from specs.system.text import plain

PAUSE, CANCEL = "pause", "cancel"
"""Names of the request files in a run folder. A request to pause is removed when it has been followed."""
HeldT = TypeVar("HeldT")
REPORT_EVERY = 5
"""Tries, of a second each, between two lines of progress."""


def ask_for(run: Path, what: str) -> None:
    """Leave a request in the name of the user, unless there is one."""
    if not (run / what).exists():
        write_durably(run / what, getpass.getuser().encode())


def find_requester(run: Path, what: str = PAUSE) -> str:
    """Return who asks for the pause or the end: the request's author, without a request the user of this process."""
    with suppress(OSError):
        if name := plain(read_regular(run / what, 1 << 16).decode("utf-8", "replace"), 100):
            return name
    return getpass.getuser()


def take_back(run: Path) -> None:
    """Remove a request to pause."""
    (run / PAUSE).unlink(missing_ok=True)


@contextmanager
def when_free(
    run: Path, what: str, lease: Callable[[Path], AbstractContextManager[HeldT]], say: Callable[[str], None]
) -> Generator[HeldT]:
    """Ask for a pause or an end, which stays asked, wait until no process runs the session, and hold its lease."""
    with ExitStack() as exit_stack:
        for tries in count():
            ask_for(run, what)
            try:
                owned = exit_stack.enter_context(lease(run))
            except LeaseHeld:
                if tries % REPORT_EVERY == 0:
                    say(f"asked {run.name} to {what}; it does so at the next safe place{_where(run)}")
                continue
            take_back(run)
            yield owned
            return


def _where(run: Path) -> str:
    with suppress(PeergateError, OSError, IndexError):
        return f" (newest entry: {plain(read_history(run)[-1].key, 100)})"
    return ""
