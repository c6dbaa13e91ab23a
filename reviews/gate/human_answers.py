"""What a person is asked, and what an answer does. The session records both; the audit derives both again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reviews.evidence.gather import find
from reviews.gate.conditions import open_for
from reviews.gate.grants import opened_by
from reviews.trail.chain.envelope import RecordedEntry, entries_of
from reviews.trail.retractions import next_attempt, standing
from specs.session.design import ResolvedDesign
from specs.system.errors import PeergateError
from specs.trail.builder_bodies import PlanEntry
from specs.trail.entry import DESIGN, EntryKind
from specs.trail.gate_bodies import AmendmentEntry, DecisionEntry, HumanAnswerEntry, OverrideEntry, RetractionEntry
from specs.trail.session_bodies import BudgetEntry

Question = DecisionEntry | PlanEntry | BudgetEntry | RetractionEntry
"""What a person is asked about."""
ByPerson = HumanAnswerEntry | OverrideEntry | AmendmentEntry
"""By which a person decides instead of a gate."""


def last_question(entries: Sequence[RecordedEntry], session: str) -> RecordedEntry[Question]:
    """Return the entry a person is asked about: the newest escalation of gate or builder, a budget, or a retraction.

    Raises:
        PeergateError: there is no such entry.
    """
    for recorded in reversed(entries_of(standing(entries), DecisionEntry, PlanEntry, BudgetEntry, RetractionEntry)):
        body = recorded.body
        if isinstance(body, DecisionEntry):
            asks = body.outcome == "escalate"
        else:
            asks = not isinstance(body, PlanEntry) or body.escalate
        if asks:
            return recorded
    raise PeergateError("nothing was escalated", where=session)


def why_no_retry(entries: Sequence[RecordedEntry], request: RecordedEntry) -> str:
    """Return why *retry* is not an answer to a question; empty when it is.

    A design is judged again only while it has no verdict, as when its reviewer was killed: asking about the same design
    often enough would find a mild reviewer.
    """
    kind, body = request.kind, request.raw
    if kind == "budget" or body["stage"] is not None:
        return ""
    if kind == "decision" and is_without_verdict(find(entries, f"verdict/{DESIGN}.{body['attempt']}")):
        return ""
    return "the design was judged, and judged again it is the same"


BY_PEOPLE: tuple[EntryKind, ...] = ("decision", "human", "override", "amendment", "retraction")
"""The kinds of entries that say whether a person decided instead of a gate."""


def is_override(value: RecordedEntry) -> bool:
    """Return whether an entry records that a person decided instead of the gate."""
    match value.body:
        case OverrideEntry():
            return True
        case HumanAnswerEntry() as answer:
            return answer.answer == "approve"
        case AmendmentEntry() as amendment:
            return amendment.overridden
        case _:
            return False


def count_overrides(entries: Sequence[RecordedEntry]) -> int:
    """Return how often a person decided instead of a gate, answers that were taken back included."""
    return sum(map(is_override, entries_of(entries, HumanAnswerEntry, OverrideEntry, AmendmentEntry)))


def overrides(entries: Sequence[RecordedEntry]) -> list[RecordedEntry[ByPerson]]:
    """Return the entries by which a person decided instead of a gate, without answers that were taken back."""
    by_people = entries_of(standing(entries), HumanAnswerEntry, OverrideEntry, AmendmentEntry)
    return [entry for entry in by_people if is_override(entry)]


def is_without_verdict(judged: RecordedEntry | None) -> bool:
    """Return whether the entry of a verdict records that it is missing."""
    return judged is not None and bool(judged.raw["error"])


def design_attempt(entries: Sequence[RecordedEntry]) -> int:
    """Return how many times the design is judged: once, and once more for every *retry*."""
    return 1 + sum(entry.kind == "human" and is_design_again(entry.raw) for entry in entries)


def is_design_again(answer: dict[str, Any]) -> bool:
    """Return whether an answer has the design judged again."""
    return answer["stage"] is None and answer["answer"] == "retry"


def answer_effect(
    resolved: ResolvedDesign, entries: Sequence[RecordedEntry], request: RecordedEntry, answer: str
) -> dict[str, Any]:
    """Return what an answer opens and which conditions it waives.

    ``retry`` opens another attempt of the stage, and has a design judged again, which opens nothing; ``approve`` opens
    what the gate's approval would have opened, and waives the conditions that kept that stage closed. A used-up budget
    is not a gate: no one can approve over it, and only an attempt that was not launched is made again.
    """
    stage = request.raw["stage"]
    if request.kind == "budget" and (answer != "retry" or request.raw["at"] != "launch"):
        return {"opens": None, "waives": []}
    if answer == "retry" and stage is not None:
        return {"opens": {"stage": stage, "attempt": next_attempt(entries, stage)}, "waives": []}
    if answer != "approve":
        return {"opens": None, "waives": []}
    opens = opened_by(resolved, entries, stage, "approve")
    moment = entries[-1].time_ns
    waived = [obligation.id for obligation in open_for(entries, resolved, opens["stage"], moment)] if opens else []
    return {"opens": opens, "waives": waived}
