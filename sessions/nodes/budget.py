"""Stops a session before a step that does not fit in the budget, and asks a person.

Nothing is spent, other reservations stay, and an interim report is written. After an amendment of the budget
`peergate resume` continues at the same step; the answer *stop* closes the session.
"""

from __future__ import annotations

from typing import Any

from reviews.gate.grants import latest_opening
from reviews.gate.human_answers import answer_effect
from reviews.history.history import History, is_in_force
from reviews.history.people import design_attempt, waits_for_budget
from reviews.trail.chain.envelope import RecordedEntry
from sessions.nodes.position import after_answer
from sessions.pages.report import report
from sessions.session import Session, State
from specs.system.errors import BudgetExceeded, UserError
from specs.trail.entry import DESIGN

BUYING: tuple[str, ...] = ("design_gate", "plan", "launch", "witness", "submit", "review")
"""Nodes of the graph that spend."""


def ask_for_budget(session: Session, node: str, state: State, error: BudgetExceeded) -> State:
    """Record that a node cannot be paid, write the interim report, and lead the session to a person."""
    entries = list(session.trail.iterate())
    stage, attempt = _where(session, node, state)
    request, at = waits_for_budget(History(entries)), {"stage": stage, "attempt": attempt, "at": node}
    # The process may have died after the entry.
    if request is None or any(request.raw[name] != value for name, value in at.items()):
        number = sum(entry.kind == "budget" for entry in entries) + 1
        session.trail.append_raw("budget", f"budget/{number}", at | {"reasons": [error.message]})
    session.display.say(f"{stage or DESIGN}: {error}")
    report.write(session.run, session.trail.path.name, session.store.root.name, report.WAITING, report.INTERIM)
    return {"route": "human"}


def _where(session: Session, node: str, state: State) -> tuple[str | None, int]:
    """Return stage and attempt; until they are planned the graph's state still names the previous stage."""
    if node == "design_gate":
        return None, design_attempt(History(session.trail.iterate("human")))
    opening = latest_opening(session.trail) if node == "plan" else None
    return (opening.stage, opening.attempt) if opening else (state.get("stage"), state.get("attempt", 0))


def answer_of(
    entries: list[RecordedEntry], request: RecordedEntry, arguments: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Return a person's *stop*, *retry* after an amendment, or None; raise UserError for any other answer."""
    if arguments is not None:
        if arguments["answer"] != "stop":
            raise UserError(
                f"'{arguments['answer']}' is not an answer to a budget that is used up",
                where=request.session,
                hint="raise it with `peergate amend`, then resume without an answer; or --answer stop",
            )
        return arguments
    amendment = next((entry for entry in reversed(entries[request.seq :]) if is_in_force(entry)), None)
    if amendment is None:
        return None
    reason = f"{amendment.key}: {amendment.raw['reason']}"
    return {"answer": "retry", "reason": reason, "by": amendment.raw["by"], "expires": None}


def follow_answer(session: Session, request: RecordedEntry, answer: dict[str, Any]) -> State:
    """Follow an answer.

    An unused grant is bound to the registration before the amendment, so the stage gets another attempt and grant.
    Every other node is entered again and finds what it had done.
    """
    body = request.raw
    if answer["answer"] == "retry" and body["at"] != "launch":
        return {"route": body["at"]}
    effect = {"stage": body["stage"], "attempt": body["attempt"], "asked": request.digest, **answer}
    effect |= answer_effect(session.resolved, History(session.trail.iterate()), request, answer["answer"])
    return after_answer(session.trail.append_raw("human", f"human/{request.key}", effect))
