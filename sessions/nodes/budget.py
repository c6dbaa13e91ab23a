"""Stops a session before a step that does not fit in the budget, and asks a person.

Nothing is spent, other reservations stay, and an interim report is written. After an amendment of the budget
`peergate resume` continues at the same step; the answer *stop* closes the session.
"""

from __future__ import annotations

from typing import Any

from reviews.gate.grants import latest_opening
from reviews.gate.human_answers import answer_effect
from reviews.history.history import History
from reviews.history.people import design_attempt, waits_for_budget
from reviews.history.recorded_history import is_in_force
from reviews.trail.chain.envelope import RecordedEntry, as_entry_of
from sessions.nodes.position import after_answer
from sessions.pages.report import report
from sessions.run.run_layout import INTERIM
from sessions.session import Session, State
from specs.system.errors import BudgetExceeded, UserError
from specs.trail.entry import DESIGN
from specs.trail.gate_bodies import AmendmentEntry, DecisionEntry, HumanAnswerEntry, PlanEntry, RetractionEntry
from specs.trail.session_bodies import BudgetEntry

BUYING: tuple[str, ...] = ("design_gate", "plan", "launch", "witness", "submit", "review")
"""Nodes of the graph that spend."""
Question = BudgetEntry | DecisionEntry | PlanEntry | RetractionEntry
"""What a person can be asked by."""


def ask_for_budget(session: Session, node: str, state: State, error: BudgetExceeded) -> State:
    """Record that a node cannot be paid, write the interim report, and lead the session to a person."""
    history = session.history
    stage, attempt = _where(session, node, state)
    body = BudgetEntry.model_validate({"stage": stage, "attempt": attempt, "at": node, "reasons": [error.message]})
    request = waits_for_budget(history)
    before = as_entry_of(request, BudgetEntry).body if request else None
    # The process may have died after the entry.
    if before is None or (before.stage, before.attempt, before.at) != (stage, attempt, node):
        session.trail.append(body, BudgetEntry.key_of(len(history.of(BudgetEntry)) + 1))
    session.display.say(f"{stage or DESIGN}: {error}")
    report.write(session.run, session.trail.path.name, session.store.root.name, report.WAITING, INTERIM)
    return {"route": "human"}


def _where(session: Session, node: str, state: State) -> tuple[str | None, int]:
    """Return stage and attempt; until they are planned the graph's state still names the previous stage."""
    if node == "design_gate":
        return None, design_attempt(session.history)
    opening = latest_opening(session.trail) if node == "plan" else None
    return (opening.stage, opening.attempt) if opening else (state.get("stage"), state.get("attempt", 0))


def answer_of(history: History, request: RecordedEntry, arguments: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a person's *stop*, *retry* after an amendment, or None; raise UserError for any other answer."""
    if arguments is not None:
        if arguments["answer"] != "stop":
            raise UserError(
                f"cannot answer '{arguments['answer']}': the budget is exhausted",
                where=request.session,
                hint="raise it with `peergate amend`, then resume without an answer; or --answer stop",
            )
        return arguments
    amendments = reversed(history[request.seq :].of(AmendmentEntry))
    amendment = next((entry for entry in amendments if is_in_force(entry)), None)
    if amendment is None:
        return None
    reason = f"{amendment.key}: {amendment.body.reason}"
    return {"answer": "retry", "reason": reason, "by": amendment.body.by, "expires": None}


def follow_answer(session: Session, request: RecordedEntry[Question], answer: dict[str, Any]) -> State:
    """Record an answer and return where it leads.

    After a larger budget nothing is recorded: the node is entered again and finds what it had done. Only an unused
    grant is bound to the registration before the amendment, so that stage gets another attempt and grant.
    """
    question = request.body
    if isinstance(question, BudgetEntry) and answer["answer"] == "retry" and question.at != "launch":
        return {"route": question.at}
    effect = answer_effect(session.resolved, session.history, request, answer["answer"])
    body = {"stage": question.stage, "attempt": question.attempt, "question": request.digest, **answer, **effect}
    return after_answer(
        session.trail.append(HumanAnswerEntry.model_validate(body), HumanAnswerEntry.key_of(request.key))
    )
