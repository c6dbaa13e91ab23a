"""Ask the reviewer about a packet, and record packet, exchange and verdict. A reviewer that fails closes the gate.

Whoever reviews signs: the entries of verdicts are signed in the reviewer's process, which came to them, and those of a
person with that person's key. What nobody signs is not recorded, and then the gate is closed too.
"""

from __future__ import annotations

from typing import Any

from reviews.gate.packet_derivation import verdict_again
from reviews.gate.panel import NAME, Answer, Panel, disagree, member_answer, merge
from reviews.gate.reviewer import Exchange, PaidReviewer, Reviewer, facts_of, no_verdict
from reviews.reviewers.process import messages, reviewer_proxy
from reviews.trail.envelope import Recorded
from reviews.trail.store import Store
from sessions.money import ledger
from sessions.session import Session
from specs.errors import BudgetExceeded, DiskUnwritable, PeergateError, ReviewerUnavailable
from specs.masking import current, without_secrets
from specs.trail.key_policy import PERSON
from specs.trail.no_verdict import no_verdict_of
from specs.trail.verdict import Packet, Verdict

REPEATS = 3
"""How often a process may be asked to sign what was said before."""


def ask(session: Session, stage: str, attempt: int, packet: Packet) -> Recorded:
    """Record the packet, have it reviewed, and record and return the verdict's entry.

    Raises:
        BudgetExceeded: nothing is left to pay the review with. There is no verdict then, so the gate stays closed, and
            it can be asked for again.
        ReviewerUnavailable: the reviewer's process does not even sign that there is no verdict.
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
        return _repeat(session, stage, attempt, shown, digest, again)
    if isinstance(session.reviewer, Panel):
        answer, facts = _ask_panel(session, session.reviewer, stage, attempt, shown, digest)
    else:
        answer, facts = _ask_one(session, session.reviewer, stage, attempt, shown, digest)
    return _record(session, f"verdict/{at}", stage, attempt, digest, answer, facts)


def _repeat(session: Session, stage: str, attempt: int, packet: Packet, digest: str, again: Verdict) -> Recorded:
    """Record the verdict of an earlier attempt again, signed by whoever gave it.

    Nothing is judged here, so where the reviewer's process is killed meanwhile the next one is asked the same.
    """
    answer, facts = Answer(again.reviewer, again), {"same_as": packet.unchanged_since}
    at, before = f"verdict/{stage}.{attempt}", f"{stage}.{packet.unchanged_since}"
    if again.reviewer == PERSON:
        return _record(session, at, stage, attempt, digest, answer, facts)
    earlier = session.store.get(_body(session, f"packet/{before}")["packet"])
    left = REPEATS
    while True:
        left -= 1
        try:
            reviewer_proxy.repeat(session.reviewing, packet.canonical(), earlier, _spoken(session, f"verdict/{before}"))
            return _record(session, at, stage, attempt, digest, answer, facts)
        except ReviewerUnavailable:
            if not left:
                raise


def without_review(session: Session, stage: str, attempt: int, error: BudgetExceeded) -> Recorded:
    """Record that nobody could be paid for a review: a verdict that approves nothing."""
    packet = session.trail.find(f"packet/{stage}.{attempt}")
    if packet is None:
        raise PeergateError("there is no packet to judge", where=f"{stage}.{attempt}")
    name = NAME if isinstance(session.reviewer, Panel) else session.reviewer.name
    answer = Answer(name, None, no_verdict_of(error))
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
        answers.append(member_answer(session.store, judged))
        asked_all = not members and len(answers) == len(panel.members)
        if asked_all and panel.tie_breaker is not None and disagree(merge(answers, panel.quorum)):
            members.append(panel.tie_breaker)
    try:
        spoken = [_spoken(session, f"verdict/{stage}.{attempt}/{number}") for number in range(1, len(answers) + 1)]
        merged = reviewer_proxy.merge(session.reviewing, digest, panel.quorum, spoken)
    except ReviewerUnavailable as failed:
        return Answer(NAME, None, no_verdict_of(failed)), {}
    return Answer(NAME, merged, merged.no_verdict), {"members": len(answers)}


def _ask_one(
    session: Session, reviewer: Reviewer, stage: str, attempt: int, packet: Packet, digest: str, member: str = ""
) -> tuple[Answer, dict[str, Any]]:
    """Return the verdict or why there is none, and for a reviewer that costs money what the exchange was."""
    facts: dict[str, Any] = {}
    try:
        if not isinstance(reviewer, PaidReviewer):
            return Answer(reviewer.name, reviewer.review(packet, digest)), facts
        cap = reviewer.cost_cap(packet)
        at = f"{attempt}{member}"
        key = ledger.reserve_review(session.trail, session.resolved.spec.budget, stage, at, cap)
        # A failure before anything is known counts as the whole cap.
        facts = {"reservation": key, "usd": cap}
        review = reviewer.ask(packet, digest)
        facts |= exchange_facts(session.store, review.exchange)
        if review.value is None:
            raise review.error or ReviewerUnavailable("no verdict", where=reviewer.name)
        return Answer(reviewer.name, review.value), facts
    except BudgetExceeded as refused:
        # No money is no judgement: with more of it the same packet can be reviewed. A call that was made is one.
        if not facts:
            raise
        return Answer(reviewer.name, None, no_verdict_of(refused)), facts
    except DiskUnwritable:
        raise
    except PeergateError as failed:
        return Answer(reviewer.name, None, no_verdict_of(failed)), facts


def _record(
    session: Session, key: str, stage: str, attempt: int, packet: str, answer: Answer, facts: dict[str, Any]
) -> Recorded:
    try:
        return _settled(session, _signed(session, key, stage, attempt, packet, answer, facts))
    except ReviewerUnavailable as failed:
        if answer.reviewer == PERSON or "same_as" in facts:
            # Of a repeated verdict, whoever asked tries the next process.
            raise
        # The process that came to it is gone, and nobody else may sign it.
        lost = Answer(answer.reviewer, None, no_verdict_of(failed))
        facts = {name: value for name, value in facts.items() if name != "members"}
        return _settled(session, _signed(session, key, stage, attempt, packet, lost, facts))


def _signed(
    session: Session, key: str, stage: str, attempt: int, packet: str, answer: Answer, facts: dict[str, Any]
) -> Recorded:
    # As the trail will hold it: the reviewer's process signs these words.
    why = without_secrets(answer.no_verdict, current()) if answer.no_verdict else None
    verdict = answer.verdict
    if verdict is None:
        assert why is not None
        verdict = no_verdict(answer.reviewer, why)
        if answer.reviewer != PERSON:
            reviewer_proxy.no_verdict(session.reviewing, packet, answer.reviewer, why)
    digest = session.store.put_value(verdict)
    body = {"stage": stage, "attempt": attempt, "packet": packet, "verdict": digest, "error": str(why) if why else ""}
    if why:
        body["cause"] = why.cause
    return session.trail.append("verdict", key, body | {"reviewer": answer.reviewer} | facts)


def _settled(session: Session, judged: Recorded) -> Recorded:
    """Settle what a verdict cost, from its entry: a process may have died between the two."""
    if "reservation" in judged.body:
        ledger.settle_review(session.trail, judged.body["reservation"], judged.body["usd"])
    return judged


def exchange_facts(store: Store, exchange: Exchange) -> dict[str, Any]:
    """Keep both bodies of an exchange and return what the trail says about it."""
    return facts_of(exchange, store.put_text)


def _spoken(session: Session, key: str) -> messages.Spoken:
    """Return a recorded verdict as the reviewer's process can check it: as it was signed."""
    payload, signatures = session.trail.envelope(key)
    verdict = session.store.get(_body(session, key)["verdict"])
    return messages.Spoken(payload=payload, signatures=signatures, verdict=verdict.decode())


def _body(session: Session, key: str) -> dict[str, Any]:
    found = session.trail.find(key)
    if found is None:
        raise PeergateError(f"the trail has no entry '{key}'", where=session.name)
    return found.body
