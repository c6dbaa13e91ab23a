"""Whom a session that runs waits for, read from its newest entries."""

from __future__ import annotations

from collections.abc import Sequence

from reviews.trail.chain.envelope import RecordedEntry
from sessions.pages.view.job_progress import running_key
from specs.jobs.job_records import WITNESS
from specs.trail.entry import DESIGN

_BUILDS = ("turn", "call", "result")
_BETWEEN = ("plan", "exit", "metrics", "submit", "verdict", "decision", "close")
"""After these, no one is asked until the next entry."""


def busy_with(entries: Sequence[RecordedEntry]) -> str:
    """Return who is at work: a job, a witness, the reviewer or the builder; empty if the entries do not say."""
    key = running_key(entries)
    if key is not None:
        of = "a witness of" if key.endswith(WITNESS) else "the job of"
        return f"{of} {'.'.join(key.removesuffix(WITNESS).rsplit('.', 2)[1:])}"
    for entry in reversed(entries):
        kind, body = entry.kind, entry.raw
        if kind == "packet":
            return f"the reviewer of {body['stage'] or DESIGN}.{body['attempt']}"
        if kind in _BUILDS:
            return f"the builder of {body['stage'] or DESIGN}.{body['attempt']}"
        if kind in _BETWEEN:
            return ""
    return ""
