"""Ask the reviewer about a packet, and record packet, exchange and verdict. A reviewer that fails closes the gate."""

from __future__ import annotations

from typing import Any

from reviews.derive import verdict_again
from reviews.panel import NAME, Answer, Panel, disagree, merge
from reviews.reviewer import Exchange, PaidReviewer, Reviewer
from reviews.store import Store
from reviews.trail import Recorded
from sessions import ledger
from sessions.session import Session
from specs.errors import BudgetExceeded, PeergateError, ReviewerUnavailable
from specs.verdicts import Packet, Verdict


def ask(session: Session, stage: str, attempt: int, packet: Packet) -> Recorded:
    """Record the packet, have it reviewed, and record and return the verdict's entry.

    Raises:
        BudgetExceeded: nothing is left to pay the review with. There is no verdict then, so the gate stays closed, and
            it can be asked for again.
    """
    at = f"{stage}.{attempt}"
    body = {"stage": stage, "attempt": attempt, "packet": session.store.put_value(packet)}
    digest: str = session.trail.append("packet", f"packet/{at}", body).body["packet"]
    judged = session.trail.find(f"verdict/{at}")
    if judged is not None:
        return _settled(session, judged)
    shown = Packet.model_validate(session.store.get_value(digest))
    facts: dict[str, Any] = {}
    again = verdict_again(list(session.trail.iterate()), session.store, shown)
    if again is not None:
        answer = Answer(again.reviewer, again, "")
        facts = {"same_as": shown.unchanged_since}
    elif isinstance(session.reviewer, Panel):
        answer, facts = _ask_panel(session, session.reviewer, stage, attempt, shown, digest)
    else:
        answer, facts = _ask_one(session, session.reviewer, stage, attempt, shown, digest)
    return _record(session, f"verdict/{at}", stage, attempt, digest, answer, facts)


def without_review(session: Session, stage: str, attempt: int, error: BudgetExceeded) -> Recorded:
    """Record that nobody could be paid for a review: a verdict that approves nothing."""
    packet = session.trail.find(f"packet/{stage}.{attempt}")
    if packet is None:
        raise PeergateError("there is no packet to judge", where=f"{stage}.{attempt}")
    name = NAME if isinstance(session.reviewer, Panel) else session.reviewer.name
    answer = Answer(name, None, f"{type(error).__name__}: {error.message}")
    return _record(session, f"verdict/{stage}.{attempt}", stage, attempt, packet.body["packet"], answer, {})


def _ask_panel(
    session: Session, panel: Panel, stage: str, attempt: int, packet: Packet, digest: str
) -> tuple[Answer, dict[str, Any]]:
    """Ask every member, each recorded by itself, and whoever breaks a tie if they disagree."""
    answers: list[Answer] = []
    members = list(panel.members)
    while members:
        reviewer = members.pop(0)
        number = len(answers) + 1
        key = f"verdict/{stage}.{attempt}/{number}"
        judged = session.trail.find(key)
        if judged is None:
            answer, facts = _ask_one(session, reviewer, stage, attempt, packet, digest, f"/member-{number}")
            judged = _record(session, key, stage, attempt, digest, answer, facts)
        _settled(session, judged)
        verdict = Verdict.model_validate(session.store.get_value(judged.body["verdict"]))
        answers.append(Answer(judged.body["reviewer"], None if judged.body["error"] else verdict, judged.body["error"]))
        asked_all = not members and len(answers) == len(panel.members)
        if asked_all and panel.tie_breaker is not None and disagree(merge(answers, panel.quorum)):
            members.append(panel.tie_breaker)
    merged = merge(answers, panel.quorum)
    missing = sum(one.verdict is None for one in answers)
    error = ""
    if len(answers) - missing < panel.quorum:
        error = f"{missing} of {len(answers)} members gave no verdict, {panel.quorum} have to"
    return Answer(NAME, merged, error), {"members": len(answers)}


def _ask_one(
    session: Session, reviewer: Reviewer, stage: str, attempt: int, packet: Packet, digest: str, member: str = ""
) -> tuple[Answer, dict[str, Any]]:
    """Return the verdict or why there is none, and for a reviewer that costs money what the exchange was."""
    facts: dict[str, Any] = {}
    try:
        if not isinstance(reviewer, PaidReviewer):
            return Answer(reviewer.name, reviewer.review(packet, digest), ""), facts
        cap = reviewer.cost_cap(packet)
        at = f"{attempt}{member}"
        key = ledger.reserve_review(session.trail, session.resolved.spec.budget, stage, at, cap)
        # A failure before anything is known counts as the whole cap.
        facts = {"reservation": key, "usd": cap}
        review = reviewer.ask(packet, digest)
        facts |= exchange_facts(session.store, review.exchange)
        if review.value is None:
            raise review.error or ReviewerUnavailable("no verdict", where=reviewer.name)
        return Answer(reviewer.name, review.value, ""), facts
    except BudgetExceeded as refused:
        # No money is no judgement: with more of it the same packet can be reviewed. A call that was made is one.
        if not facts:
            raise
        return Answer(reviewer.name, None, f"{type(refused).__name__}: {refused.message}"), facts
    except PeergateError as failed:
        return Answer(reviewer.name, None, f"{type(failed).__name__}: {failed.message}"), facts


def _record(
    session: Session, key: str, stage: str, attempt: int, packet: str, answer: Answer, facts: dict[str, Any]
) -> Recorded:
    verdict = answer.verdict or Verdict(
        reviewer=answer.reviewer,
        findings=(),
        recommendation="none: the reviewer gave no verdict",
        reasoning=answer.error,
        risks=(),
        approve=False,
    )
    digest = session.store.put_value(verdict)
    body = {"stage": stage, "attempt": attempt, "packet": packet, "verdict": digest, "error": answer.error}
    body |= {"reviewer": answer.reviewer} | facts
    return _settled(session, session.trail.append("verdict", key, body))


def _settled(session: Session, judged: Recorded) -> Recorded:
    """Settle what a verdict cost, from its entry: a process may have died between the two."""
    if "reservation" in judged.body:
        ledger.settle_review(session.trail, judged.body["reservation"], judged.body["usd"])
    return judged


def exchange_facts(store: Store, exchange: Exchange) -> dict[str, Any]:
    """Keep both bodies of an exchange and return what the trail says about it."""
    return {
        "model": exchange.model,
        "request": store.put(exchange.request) if exchange.request else None,
        "response": store.put(exchange.response) if exchange.response is not None else None,
        "statuses": list(exchange.statuses),
        "usage": exchange.usage,
        "usd": exchange.usd,
        "usd_is_measured": exchange.usd_is_measured,
        "seconds": exchange.seconds,
        "reasoning": exchange.reasoning,
    }
