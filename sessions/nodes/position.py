"""Where a session is, read from its trail alone: the last finished node, and what it returned.

The graph keeps nothing between starts. A node whose newest entry is not its last effect (a launch before its job is
started, an exit or a verdict before it is paid) is not finished and is entered again; it finds what it did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reviews.history.people import is_design_again
from reviews.trail.chain.envelope import RecordedEntry, as_entry_of
from sessions.session import Route, State
from specs.trail.gate_bodies import HumanAnswerEntry

_AFTER: dict[str, Route] = {"revise": "again", "escalate": "human"}
_STEPS: tuple[tuple[str, str], ...] = (
    ("plan/{stage}.{attempt}", "plan"),
    ("grant/{session}.{stage}.{attempt}", "build"),
    ("exit/{session}.{stage}.{attempt}", "launch"),
    ("lost/{session}.{stage}.{attempt}", "launch"),
    ("challenge/{stage}.{attempt}", "wait"),
    ("witness/{stage}.{attempt}", "wait"),
    ("metrics/{stage}.{attempt}", "measure"),
    ("submit/{stage}.{attempt}", "submit"),
    ("checks/{stage}.{attempt}", "check"),
)
"""The entries of an attempt in their order, and the node that each of them finishes."""


class Position(NamedTuple):
    """The last finished node, what it returned, and the entry that says so."""

    after: str
    state: State
    told_by: RecordedEntry


def position(entries: Sequence[RecordedEntry]) -> Position | None:
    """Return where a session is; None before its design is judged."""
    newest = next((entry for entry in reversed(entries) if _leads(entry)), None)
    if newest is None:
        return None
    match newest.kind:
        case "report":
            return Position("decide", {"route": "close", "outcome": newest.raw["outcome"]}, newest)
        case "decision":
            return _within(entries, newest) or Position("decide", after_decision(newest), newest)
        case "human":
            return _within(entries, newest) or Position("human", after_answer(newest), newest)
        case _:
            state: State = {"stage": newest.raw["stage"] or "", "attempt": newest.raw["attempt"], "route": "human"}
            return Position("decide", state, newest)


def _leads(value: RecordedEntry) -> bool:
    """Return whether an entry leads the session elsewhere than to the next node of an attempt."""
    kind = value.kind
    return kind in ("decision", "human", "retraction", "budget", "report") or (
        kind == "plan" and bool(value.raw["escalate"])
    )


def _within(entries: Sequence[RecordedEntry], judgement: RecordedEntry) -> Position | None:
    """Return where a session is in the attempt that a judgement opened; None before its plan."""
    opens = judgement.raw.get("opens")
    if opens is None:
        return None
    there = {entry.key: entry for entry in entries[judgement.seq + 1 :]}
    state: State = {"stage": opens["stage"], "attempt": opens["attempt"], "route": "go"}
    for key, node in reversed(_STEPS):
        if (value := there.get(key.format(session=judgement.session, **opens))) is not None:
            return Position(node, state, value)
    return None


def after_decision(decision: RecordedEntry) -> State:
    """Return where a decision leads."""
    outcome = decision.raw["outcome"]
    if outcome == "approve" and decision.raw["opens"] is not None:
        return {"route": "next"}
    return {"route": _AFTER[outcome]} if outcome in _AFTER else {"route": "close", "outcome": outcome}


def after_answer(answer: RecordedEntry) -> State:
    """Return where a person's answer leads."""
    body = answer.raw
    if is_design_again(as_entry_of(answer, HumanAnswerEntry).body):
        return {"route": "design_gate"}
    if body["opens"] is not None:
        return {"route": "again" if body["answer"] == "retry" else "next"}
    if answer.key.startswith("human/budget/"):
        return {"route": "close", "outcome": "budget"}
    # Nothing is left to open: an override of the last gate accepts the session, any other answer ends it.
    return {"route": "close", "outcome": "approve" if body["answer"] == "approve" else "stop"}
