"""On the pod: finds and ends processes of sessions that are over.

Only processes that a session here started have the HOME of this root. The working folder, the command line or the
parent names the session. Jobs outlive their orchestrator, so an open session keeps its wrappers; its other processes
need a wrapper or an orchestrator above them.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import NamedTuple

import psutil

from reviews.trail.tables.open_table import read_entries
from sessions.jobs.orphans import VARIABLE
from sessions.pods.remote.pod_layout import Layout
from sessions.pods.remote.process_state import KEEPER, ORCHESTRATOR
from sessions.run.claim import lives, read_record
from sessions.run.run_layout import TRAIL
from specs.system.errors import PeergateError

TERM_S = 5.0


class SessionProcess(NamedTuple):
    """A process of this root, the session it belongs to, and the ids of the processes above it."""

    process: psutil.Process
    session: str | None
    is_wrapper: bool
    above: set[int]


def sweep(layout: Layout, *, everything: bool = False) -> list[str]:
    """End the orphans of this root, or all of its processes and this session's (``everything``); a line for each."""
    results = processes(layout)
    orphans = [value for value in results if _is_orphan(layout, value, results, everything)]
    parts = [_describe_process(orphan) for orphan in orphans]
    remaining_processes = [orphan.process for orphan in orphans]
    for end in (psutil.Process.terminate, psutil.Process.kill):
        for process in remaining_processes:
            with suppress(psutil.Error):
                end(process)
        _, remaining_processes = psutil.wait_procs(remaining_processes, timeout=TERM_S)
    return parts


def processes(layout: Layout) -> list[SessionProcess]:
    """Return the processes of this root except keepers and this process."""
    keepers = {(read_record(path) or {}).get("pid") for path in layout.root.glob(f"pods/*/{KEEPER}")}
    results: list[SessionProcess] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid in keepers or process.pid == os.getpid():
                continue
            environ = process.environ()
            if environ.get("HOME") == str(layout.home):
                words = process.cmdline()
                session = _session(layout, [environ.get(VARIABLE, ""), process.cwd(), *words])
                above = {parent.pid for parent in process.parents()}
                results.append(SessionProcess(process, session, "sessions.jobs.wrapper" in words, above))
    named = {value.process.pid: value.session for value in results if value.session}
    return [
        value._replace(session=value.session or next(map(named.get, value.above & named.keys()), None))
        for value in results
    ]


def _session(layout: Layout, texts: list[str]) -> str | None:
    for text in texts:
        below = text.partition(f"{layout.runs}/")[2]
        if below:
            return below.partition("/")[0]
    return None


def _is_orphan(layout: Layout, value: SessionProcess, results: list[SessionProcess], everything: bool) -> bool:
    if everything and value.session in (layout.name, None):
        return True
    if value.session is None:
        return not any(lives(path) for path in layout.root.glob(f"pods/*/{ORCHESTRATOR}"))
    session = Layout(layout.root, value.session)
    if lives(session.own / ORCHESTRATOR):
        return False
    if is_over(session):
        return True
    return not value.is_wrapper and not value.above & {other.process.pid for other in results if other.is_wrapper}


def is_over(layout: Layout) -> bool:
    """Return whether a session is closed or its trail is missing."""
    path = layout.run / TRAIL
    if not path.exists():
        return True
    with suppress(PeergateError, OSError):
        return any(entry.kind == "close" for entry in read_entries(path))
    return False


def _describe_process(value: SessionProcess) -> str:
    age, words = 0.0, "?"
    with suppress(psutil.Error):
        age = time.time() - value.process.create_time()
        words = " ".join(value.process.cmdline())[:120]
    return f"process {value.process.pid} of session {value.session or 'none'}, {age:.0f} s old: {words}"
