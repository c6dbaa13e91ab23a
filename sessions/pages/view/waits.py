"""Whom a session that runs waits for, read from its newest entries."""

from __future__ import annotations

from reviews.history.history import History
from sessions.pages.view.job_progress import running_key
from specs.jobs.job_records import WITNESS
from specs.trail.entry import DESIGN
from specs.trail.gate_bodies import (
    DecisionEntry,
    MetricsEntry,
    PacketEntry,
    PlanEntry,
    SubmitEntry,
    ToolCallEntry,
    ToolResultEntry,
    TurnEntry,
    VerdictEntry,
)
from specs.trail.session_bodies import CloseEntry, ExitEntry

_BUILDING = (TurnEntry, ToolCallEntry, ToolResultEntry)
_BETWEEN = (PlanEntry, ExitEntry, MetricsEntry, SubmitEntry, VerdictEntry, DecisionEntry, CloseEntry)
"""After these, no one is asked until the next entry."""


def busy_with(history: History) -> str:
    """Return who is at work: a job, a witness, the reviewer or the builder; empty if the entries do not say."""
    key = running_key(history)
    if key is not None:
        of = "a witness of" if key.endswith(WITNESS) else "the job of"
        return f"{of} {'.'.join(key.removesuffix(WITNESS).rsplit('.', 2)[1:])}"
    newest = history.newest(PacketEntry, *_BUILDING, *_BETWEEN)
    match newest.body if newest else None:
        case PacketEntry(stage=stage, attempt=attempt):
            return f"the reviewer of {stage or DESIGN}.{attempt}"
        case TurnEntry() | ToolCallEntry() | ToolResultEntry() as building:
            return f"the builder of {building.stage or DESIGN}.{building.attempt}"
        case _:
            return ""
