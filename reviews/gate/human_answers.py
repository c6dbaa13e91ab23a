"""What an answer of a person does. The session records both; the audit derives both again."""

from __future__ import annotations

from typing import Any

from reviews.gate.conditions import open_for
from reviews.gate.grants import opened_by
from reviews.history.people import QUESTIONS
from reviews.history.recorded_history import RecordedHistory
from reviews.trail.chain.envelope import RecordedEntry, as_entry_of
from specs.session.design import ResolvedDesign
from specs.trail.gate_bodies import DecisionEntry, VerdictEntry
from specs.trail.session_bodies import BudgetEntry


def why_no_retry(history: RecordedHistory, request: RecordedEntry) -> str:
    """Return why *retry* is not an answer to a question; empty when it is.

    A design is judged again only while it has no verdict, as when its reviewer was killed: asking about the same design
    often enough would find a mild reviewer.
    """
    body = as_entry_of(request, *QUESTIONS).body
    if isinstance(body, BudgetEntry) or body.stage is not None:
        return ""
    if isinstance(body, DecisionEntry) and is_without_verdict(history.attempt_of(body).verdict):
        return ""
    return "the design was judged, and judged again it is the same"


def is_without_verdict(judged: RecordedEntry[VerdictEntry] | None) -> bool:
    """Return whether the entry of a verdict records that it is missing."""
    return judged is not None and bool(judged.body.error)


def answer_effect(
    resolved: ResolvedDesign, history: RecordedHistory, request: RecordedEntry, answer: str
) -> dict[str, Any]:
    """Return what an answer opens and which conditions it waives.

    ``retry`` opens another attempt of the stage, and has a design judged again, which opens nothing; ``approve`` opens
    what the gate's approval would have opened, and waives the conditions that kept that stage closed. A used-up budget
    is not a gate: no one can approve over it, and only an attempt that was not launched is repeated.
    """
    body = as_entry_of(request, *QUESTIONS).body
    stage = body.stage
    if isinstance(body, BudgetEntry) and (answer != "retry" or body.at != "launch"):
        return {"opens": None, "waives": []}
    if answer == "retry" and stage is not None:
        return {"opens": {"stage": stage, "attempt": history.next_attempt(stage)}, "waives": []}
    if answer != "approve":
        return {"opens": None, "waives": []}
    opens = opened_by(resolved, history, stage, "approve")
    moment = history[-1].time_ns
    waived = [obligation.id for obligation in open_for(history, resolved, opens["stage"], moment)] if opens else []
    return {"opens": opens, "waives": waived}
