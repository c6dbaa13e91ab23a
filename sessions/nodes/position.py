"""Where a session is, read from its trail alone: the last finished node, and what it returned.

The graph keeps nothing between starts. A node whose newest entry is not its last effect (a launch before its job is
started, an exit or a verdict before it is paid) is not finished and is entered again; it finds what it did.
"""

from __future__ import annotations

from typing import NamedTuple

from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry, as_entry_of
from sessions.session import Route, State
from specs.trail.entry import Body
from specs.trail.gate_bodies import DecisionEntry, HumanAnswerEntry, Opens, PlanEntry, RetractionEntry
from specs.trail.session_bodies import BudgetEntry, ReportEntry

_AFTER: dict[str, Route] = {"revise": "again", "escalate": "human"}


class Position(NamedTuple):
    """The last finished node, what it returned, and the entry that says so."""

    after: str
    state: State
    entry: RecordedEntry


def position(history: History) -> Position | None:
    """Return where a session is; None before its design is judged."""
    newest = next((entry for entry in reversed(history) if _leads(entry.body)), None)
    if newest is None:
        return None
    match newest.body:
        case ReportEntry(outcome=outcome):
            return Position("decide", {"route": "close", "outcome": outcome}, newest)
        case DecisionEntry() as decision:
            return _within(history, decision.opens) or Position("decide", after_decision(decision), newest)
        case HumanAnswerEntry() as answer:
            after = after_answer(as_entry_of(newest, HumanAnswerEntry))
            return _within(history, answer.opens) or Position("human", after, newest)
        case PlanEntry() | BudgetEntry() | RetractionEntry() as question:
            state: State = {"stage": question.stage or "", "attempt": question.attempt, "route": "human"}
            return Position("decide", state, newest)
        case _:
            return None


def _leads(body: Body) -> bool:
    """Return whether an entry leads the session elsewhere than to the next node of an attempt."""
    if isinstance(body, PlanEntry):
        return body.escalate
    return isinstance(body, DecisionEntry | HumanAnswerEntry | RetractionEntry | BudgetEntry | ReportEntry)


def _within(history: History, opens: Opens | None) -> Position | None:
    """Return where a session is in the attempt that a judgement opened; None before its plan."""
    if opens is None:
        return None
    attempt = history.attempt(opens.stage, opens.attempt)
    steps: tuple[tuple[RecordedEntry | None, str], ...] = (
        (attempt.checks, "check"),
        (attempt.submission, "submit"),
        (attempt.metrics, "measure"),
        (attempt.witness or attempt.challenge, "wait"),
        (attempt.end, "launch"),
        (attempt.grant, "build"),
        (attempt.plan, "plan"),
    )
    state: State = {"stage": opens.stage, "attempt": opens.attempt, "route": "go"}
    return next((Position(node, state, entry) for entry, node in steps if entry is not None), None)


def after_decision(decision: DecisionEntry) -> State:
    """Return where a decision leads."""
    outcome = decision.outcome
    if outcome == "approve" and decision.opens is not None:
        return {"route": "next"}
    return {"route": _AFTER[outcome]} if outcome in _AFTER else {"route": "close", "outcome": outcome}


def after_answer(recorded: RecordedEntry[HumanAnswerEntry]) -> State:
    """Return where a person's answer leads."""
    body = recorded.body
    if body.stage is None and body.answer == "retry":
        return {"route": "design_gate"}
    if body.opens is not None:
        return {"route": "again" if body.answer == "retry" else "next"}
    if recorded.key.startswith(HumanAnswerEntry.key_of(BudgetEntry.key_of(""))):
        return {"route": "close", "outcome": "budget"}
    # Nothing is left to open: an override of the last gate accepts the session, any other answer ends it.
    return {"route": "close", "outcome": "approve" if body.answer == "approve" else "stop"}
