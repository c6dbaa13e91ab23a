"""What people are asked and decided, and the conditions of approvals, each open until it is met or waived."""

from __future__ import annotations

from typing import Literal, NamedTuple

from reviews.history.recorded_history import RecordedHistory, is_in_force
from reviews.trail.chain.envelope import RecordedEntry
from specs.system.errors import PeergateError
from specs.trail.gate_bodies import (
    AmendmentEntry,
    DecisionEntry,
    HumanAnswerEntry,
    NamedCondition,
    OverrideEntry,
    PlanEntry,
    RetractionEntry,
)
from specs.trail.session_bodies import BudgetEntry, CloseEntry
from specs.trail.verdict import Condition

Question = DecisionEntry | PlanEntry | BudgetEntry | RetractionEntry
ByPerson = HumanAnswerEntry | OverrideEntry | AmendmentEntry
"""The entries by which a person decides instead of a gate."""
QUESTIONS = (DecisionEntry, PlanEntry, BudgetEntry, RetractionEntry)
"""What a person may be asked about."""
_LIFTING = (OverrideEntry, HumanAnswerEntry, AmendmentEntry)


class Obligation(NamedTuple):
    """A condition that an approval carried over."""

    id: str
    condition: Condition
    made: int
    """Number of the entry that put it in force: only what is measured after it can meet it."""
    state: Literal["open", "met", "waived"]
    settled_by: str
    """Key of the entry that settled it; empty while it is open."""


def obligations(history: RecordedHistory, moment_ns: int) -> list[Obligation]:
    """Return every obligation in force at a moment (nanoseconds since 1970)."""
    offered: dict[str, tuple[int, NamedCondition]] = {}
    settled: dict[str, tuple[Literal["met", "waived"], str]] = {}
    for entry in history.standing_of(DecisionEntry, AmendmentEntry, HumanAnswerEntry):
        approved: DecisionEntry | AmendmentEntry | None = None
        match body := entry.body:
            case DecisionEntry(outcome="approve"):
                approved = body
                settled |= dict.fromkeys(body.met, ("met", entry.key))
            case AmendmentEntry() if is_in_force(entry):
                approved = body
            case HumanAnswerEntry(answer="approve"):
                request = history.find_digest(body.question)
                if request is not None and request.seq not in history.retracted:
                    approved = request.body if isinstance(request.body, DecisionEntry) else None
                settled |= dict.fromkeys(body.waives, ("waived", entry.key))
            case _:
                pass
        offered |= {condition.id: (entry.seq, condition) for condition in (approved.conditions if approved else ())}
    settled |= {
        entry.body.condition: ("waived", entry.key)
        for entry in history.of(OverrideEntry)
        if entry.body.condition is not None and _is_active(entry.body, moment_ns)
    }
    return [
        Obligation(
            id, Condition.model_validate(condition.model_dump(exclude={"id"})), made, *settled.get(id, ("open", ""))
        )
        for id, (made, condition) in offered.items()
    ]


def lifted_checks(history: RecordedHistory, stage: str, moment_ns: int) -> dict[str, str]:
    """Return the checks that are lifted for a stage at a moment, each with the person and the reason."""
    return {
        override.check: f"{override.by}: {override.reason}"
        for override in (entry.body for entry in history.of(OverrideEntry))
        if override.check is not None and override.stage == stage and _is_active(override, moment_ns)
    }


def _is_active(override: OverrideEntry, moment_ns: int) -> bool:
    return override.expires is None or moment_ns <= override.expires * 1e9


def is_override(entry: RecordedEntry) -> bool:
    """Return whether an entry records that a person decided instead of the gate."""
    if entry.kind not in {form.KIND for form in _LIFTING}:
        return False
    match entry.body:
        case OverrideEntry() | HumanAnswerEntry(answer="approve") | AmendmentEntry(overridden=True):
            return True
        case _:
            return False


def count_overrides(history: RecordedHistory) -> int:
    """Return how often a person decided instead of a gate, answers that were taken back included."""
    return sum(map(is_override, history.of(*_LIFTING)))


def overrides(history: RecordedHistory) -> list[RecordedEntry[ByPerson]]:
    """Return the entries by which a person decided instead of a gate, without answers that were taken back."""
    return [entry for entry in history.standing_of(*_LIFTING) if is_override(entry)]


def last_question(history: RecordedHistory) -> RecordedEntry[Question]:
    """Return the entry a person is asked about: the newest escalation of gate or builder, a budget, or a retraction.

    Raises:
        PeergateError: there is no such entry.
    """
    for entry in reversed(history.standing_of(*QUESTIONS)):
        match entry.body:
            case BudgetEntry() | RetractionEntry() | DecisionEntry(outcome="escalate") | PlanEntry(escalate=True):
                return entry
            case _:
                pass
    raise PeergateError("nothing was escalated", where=history.session)


def waits_for_budget(history: RecordedHistory) -> RecordedEntry[BudgetEntry] | None:
    """Return the entry that says what does not fit in the budget, unless an answer or an amendment followed it."""
    budget = history.newest(BudgetEntry)
    answers: list[RecordedEntry] = [*history.of(HumanAnswerEntry, RetractionEntry, CloseEntry)]
    answers += filter(is_in_force, history.of(AmendmentEntry))
    return None if budget is None or any(entry.seq > budget.seq for entry in answers) else budget


def design_attempt(history: RecordedHistory) -> int:
    """Return how many times the design is judged: once, and once more for every *retry*."""
    return 1 + sum(is_design_again(entry.body) for entry in history.of(HumanAnswerEntry))


def is_design_again(answer: HumanAnswerEntry) -> bool:
    """Return whether an answer has the design judged again."""
    return answer.stage is None and answer.answer == "retry"
