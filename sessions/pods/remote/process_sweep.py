"""On the pod: finds processes of sessions that are over, and ends them.

Everything a session here starts has the HOME of this root, which nothing else has. Whose it is says its working folder,
its command line, or its parent. A job outlives its orchestrator on purpose, so a session that is still open keeps its
wrappers; its other processes need a wrapper or an orchestrator above them.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import NamedTuple

import psutil

from reviews.trail.tables.open_table import read_entries
from sessions.jobs.orphans import VARIABLE
from sessions.pods.remote import process_state
from sessions.pods.remote.pod_layout import Layout
from sessions.run.run_layout import TRAIL
from specs.errors import PeergateError

TERM_S = 5.0


class Found(NamedTuple):
    """A process of this root, and the session it belongs to."""

    process: psutil.Process
    session: str | None
    is_wrapper: bool


def sweep(layout: Layout, *, everything: bool = False) -> list[str]:
    """End the orphans of this root; returns a line for each.

    Args:
        layout: the session that asks; orphans of other sessions of the root are ended too.
        everything: end all processes of this session, whatever its state: the pod is going to end.
    """
    found = processes(layout)
    orphans = [one for one in found if _is_orphan(layout, one, found, everything)]
    told = [_told(one) for one in orphans]
    for one in orphans:
        with suppress(psutil.Error):
            one.process.terminate()
    _, left = psutil.wait_procs([one.process for one in orphans], timeout=TERM_S)
    for process in left:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, timeout=TERM_S)
    return told


def processes(layout: Layout) -> list[Found]:
    """Return the processes of this root that no keeper and no command of ours is."""
    keepers = {
        (process_state.read(path) or {}).get("pid") for path in layout.root.glob(f"pods/*/{process_state.KEEPER}")
    }
    found: list[Found] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid in keepers or process.pid == os.getpid():
                continue
            environ = process.environ()
            if environ.get("HOME") == str(layout.home):
                words = process.cmdline()
                texts = [environ.get(VARIABLE, ""), process.cwd(), *words]
                found.append(Found(process, _session(layout, texts), "sessions.jobs.wrapper" in words))
    return [one if one.session else one._replace(session=_inherited(one, found)) for one in found]


def _session(layout: Layout, texts: list[str]) -> str | None:
    for text in texts:
        below = text.partition(f"{layout.runs}/")[2]
        if below:
            return below.partition("/")[0]
    return None


def _inherited(one: Found, found: list[Found]) -> str | None:
    with suppress(psutil.Error):
        above = {parent.pid for parent in one.process.parents()}
        return next((other.session for other in found if other.process.pid in above and other.session), None)
    return None


def _is_orphan(layout: Layout, one: Found, found: list[Found], everything: bool) -> bool:
    if everything and one.session in (layout.name, None):
        return True
    session = Layout(layout.root, one.session) if one.session else None
    if session is not None and process_state.lives(session.own / process_state.ORCHESTRATOR):
        return False
    if session is None:
        running = {
            path.parent
            for path in layout.root.glob(f"pods/*/{process_state.ORCHESTRATOR}")
            if process_state.lives(path)
        }
        return not running
    if is_over(session):
        return True
    if one.is_wrapper:
        return False
    wrappers = {other.process.pid for other in found if other.is_wrapper}
    with suppress(psutil.Error):
        return not wrappers & {parent.pid for parent in one.process.parents()}
    return False


def is_over(layout: Layout) -> bool:
    """Say whether a session is closed, or not there any more."""
    path = layout.run / TRAIL
    if not path.exists():
        return True
    with suppress(PeergateError, OSError):
        return any(one.entry.kind == "close" for one in read_entries(path))
    return False


def _told(one: Found) -> str:
    age, words = 0.0, "?"
    with suppress(psutil.Error):
        age = time.time() - one.process.create_time()
        words = " ".join(one.process.cmdline())[:120]
    return f"process {one.process.pid} of session {one.session or 'none'}, {age:.0f} s old: {words}"
