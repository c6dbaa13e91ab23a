"""Asks the reviewer about a packet, and records packet, exchange and verdict. A reviewer that fails closes the gate.

The reviewer's process signs the entries of its verdicts, and a person's key those of the person. An unsigned verdict is
not recorded, and then the gate is closed too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reviews.gate.canaries import Canary, draw_canary, suspension_of
from reviews.gate.packet_derivation import verdict_again
from reviews.gate.panel import NAME, ReviewerAnswer, ReviewPanel, disagree, member_answer, merge
from reviews.gate.reviewer import ModelOutcome, PacketReviewer, PaidReviewer, ReviewExchange, facts_of, no_verdict
from reviews.reviewers.process import messages, reviewer_proxy
from reviews.reviewers.process.reviewer_proxy import ModelApart
from reviews.trail.chain.envelope import RecordedEntry, as_entry_of
from reviews.trail.chain.store import Store
from sessions.requests.lookups import may_look
from sessions.run.money import ledger
from sessions.session import CancelSignal, PauseSignal, Session
from specs.system.errors import BudgetExceeded, DiskUnwritable, PeergateError, ReviewerUnavailable
from specs.system.masking import current, without_secrets
from specs.trail.gate_bodies import CanaryEntry, PacketEntry, VerdictEntry
from specs.trail.key_policy import PERSON
from specs.trail.verdict import HELP, NoVerdict, Packet, Verdict, no_verdict_of

_Judged = RecordedEntry[VerdictEntry]
CUT_OFF_REPEATS = 2
"""How often a review is asked for again whose answer was cut off."""
REPEATS = 3
"""How often a process may be asked to sign an earlier verdict again."""


@dataclass(frozen=True)
class _Case:
    """The digest of a recorded packet that is to be judged, and the attempt it belongs to."""

    session: Session
    stage: str
    attempt: int
    digest: str

    @property
    def key(self) -> str:
        """The key of the verdict."""
        return VerdictEntry.key_of(self.stage, self.attempt)


def ask(session: Session, stage: str, attempt: int, packet: Packet) -> _Judged:
    """Record the packet, have it reviewed, and record and return the verdict's entry.

    Raises:
        BudgetExceeded: no money is left for the review. Then the gate stays closed without a verdict, and the review
            can be asked for again.
        ReviewerUnavailable: the reviewer's process does not even sign that it has no verdict.
    """
    body = PacketEntry(stage=stage, attempt=attempt, packet=session.store.put_value(packet))
    case = _Case(session, stage, attempt, session.trail.append(body).body.packet)
    judged = session.find(VerdictEntry, stage, attempt)
    if judged is not None:
        return _settle_cost(session, judged)
    displayed_packet = session.store.read(case.digest, Packet.model_validate_json)
    if displayed_packet.withdrawn:
        return _record(case, ReviewerAnswer(_name(session), None, _withdrawn(displayed_packet)), {})
    again = verdict_again(session.history, displayed_packet)
    if again is not None:
        return _repeat(case, displayed_packet, again)
    if isinstance(session.reviewer, ReviewPanel):
        return _record(case, *_ask_panel(case, session.reviewer, displayed_packet))
    return _record(case, *_request_verdict(case, session.reviewer, displayed_packet))


def _repeat(case: _Case, packet: Packet, again: Verdict) -> _Judged:
    """Record an earlier verdict again, signed by its reviewer. Nothing is judged, so a killed process is replaced."""
    session, answer, facts = case.session, ReviewerAnswer(again.reviewer, again), {"same_as": packet.unchanged_since}
    if again.reviewer == PERSON:
        return _record(case, answer, facts)
    before = case.stage, packet.unchanged_since
    earlier = session.store.get(session.entry(PacketEntry, *before).packet)
    repeats = REPEATS
    while True:
        repeats -= 1
        try:
            reviewer_proxy.repeat(session.reviewing, packet.canonical(), earlier, _spoken(session, *before))
            return _record(case, answer, facts)
        except ReviewerUnavailable:
            if not repeats:
                raise


def without_review(session: Session, stage: str, attempt: int, error: BudgetExceeded) -> _Judged:
    """Record that no money was left for a review: a verdict that approves nothing."""
    case = _Case(session, stage, attempt, session.entry(PacketEntry, stage, attempt).packet)
    return _record(case, ReviewerAnswer(_name(session), None, no_verdict_of(error)), {})


def _name(session: Session) -> str:
    return NAME if isinstance(session.reviewer, ReviewPanel) else session.reviewer.name


def _withdrawn(packet: Packet) -> NoVerdict:
    """Return why no reviewer is asked about a job that its builder ended: it has no result to judge."""
    what = "the builder ended the job of this attempt, so there is nothing to judge"
    return NoVerdict(cause="withdrawn", what=what, detail=packet.withdrawn, help=HELP["withdrawn"])


def _ask_panel(case: _Case, panel: ReviewPanel, packet: Packet) -> tuple[ReviewerAnswer, dict[str, Any]]:
    """Ask every member, each recorded separately, and the tie breaker if they disagree."""
    session, answers, members = case.session, list[ReviewerAnswer](), list(panel.members)
    while members:
        reviewer, number = members.pop(0), len(answers) + 1
        judged = session.find(VerdictEntry, case.stage, f"{case.attempt}/{number}")
        if judged is None:
            judged = _record(case, *_request_verdict(case, reviewer, packet, f"/member-{number}"), f"/{number}")
        _settle_cost(session, judged)
        answers.append(member_answer(session.store, as_entry_of(judged, VerdictEntry)))
        all_members_answered = not members and len(answers) == len(panel.members)
        if all_members_answered and panel.tie_breaker is not None and disagree(merge(answers, panel.quorum)):
            members.append(panel.tie_breaker)
    try:
        spoken = [_spoken(session, case.stage, f"{case.attempt}/{number}") for number in range(1, len(answers) + 1)]
        merged = reviewer_proxy.merge(session.reviewing, case.digest, panel.quorum, spoken)
    except ReviewerUnavailable as failed:
        return ReviewerAnswer(NAME, None, no_verdict_of(failed)), {}
    return ReviewerAnswer(NAME, merged, merged.no_verdict), {"members": len(answers)}


def _request_verdict(
    case: _Case, reviewer: PacketReviewer, packet: Packet, member: str = ""
) -> tuple[ReviewerAnswer, dict[str, Any]]:
    """Return the verdict or why there is none, and the facts of the exchange with a paid reviewer."""
    session, facts = case.session, dict[str, Any]()
    try:
        if not isinstance(reviewer, PaidReviewer):
            return ReviewerAnswer(reviewer.name, reviewer.review(packet, case.digest)), facts
        if (suspended := suspension_of(session.history, reviewer.name)) is not None:
            return ReviewerAnswer(reviewer.name, None, suspended), facts
        canary = _draw_canary(case, reviewer, packet)
        if canary is not None and canary.is_first:
            _ask_canary(case, reviewer, canary, member)
        review, facts = _ask_paid(case, reviewer, packet, case.digest, f"{case.attempt}{member}", facts)
        if canary is not None and not canary.is_first:
            _ask_canary(case, reviewer, canary, member)
        if canary is not None and (suspended := suspension_of(session.history, reviewer.name)) is not None:
            session.display.say(f"  {reviewer.name}: {suspended}")
            return ReviewerAnswer(reviewer.name, None, suspended), facts
        if review.value is None:
            raise review.error or ReviewerUnavailable("no verdict", where=reviewer.name)
        return ReviewerAnswer(reviewer.name, review.value), facts
    except BudgetExceeded as refused:
        # Only a call is a judgement; without a call the packet can be reviewed later.
        if not facts:
            raise
        return ReviewerAnswer(reviewer.name, None, no_verdict_of(refused)), facts
    except DiskUnwritable:
        raise
    except PeergateError as failed:
        return ReviewerAnswer(reviewer.name, None, no_verdict_of(failed)), facts


def _ask_paid(
    case: _Case, reviewer: PaidReviewer, packet: Packet, digest: str, at: str, facts: dict[str, Any]
) -> tuple[ModelOutcome[Verdict], dict[str, Any]]:
    """Ask a paid reviewer about a packet within a reservation; fill and return the facts that the trail records.

    Raises:
        BudgetExceeded: no money is left for the review.
    """
    session = case.session
    cap, budget = reviewer.cost_cap(packet), session.resolved.spec.budget
    cut_off_repeats = CUT_OFF_REPEATS
    while True:
        # A reservation that is not settled counts as its whole cap: an answer that was cut off may be billed.
        key = ledger.reserve_review(session.trail, budget, case.stage, at, cap)
        # A failure before anything is known counts as the whole cap.
        facts |= {"reservation": key, "usd": cap}
        with may_look(session, case.stage, case.attempt, digest, reviewer):
            review = _ask_reviewer(session, reviewer, packet, digest, key)
        if review.error is None or review.error.cause != "cut_off" or not cut_off_repeats:
            return review, facts | exchange_facts(session.store, review.exchange)
        cut_off_repeats -= 1
        session.display.say(f"  {reviewer.name}: {review.error.message}; it is asked again")


def _draw_canary(case: _Case, reviewer: PaidReviewer, packet: Packet) -> Canary | None:
    if not isinstance(reviewer, ModelApart) or not reviewer.canary_rate:
        return None
    recorded = case.session.find(PacketEntry, case.stage, case.attempt)
    return draw_canary(recorded, packet, reviewer.name, reviewer.canary_rate) if recorded else None


def _ask_canary(case: _Case, reviewer: PaidReviewer, canary: Canary, member: str) -> None:
    """Put a packet with a planted flaw to a reviewer, once, and record what it said of it."""
    session, key = case.session, CanaryEntry.key_of(case.stage, f"{case.attempt}{member}")
    if session.trail.find(key, CanaryEntry) is not None:
        return
    digest = session.store.put_value(canary.packet)
    facts: dict[str, Any] = {}
    review, facts = _ask_paid(case, reviewer, canary.packet, digest, f"{case.attempt}{member}/canary", facts)
    verdict = review.value or no_verdict(
        reviewer.name, no_verdict_of(review.error or ReviewerUnavailable("no verdict", where=reviewer.name))
    )
    outcome = "no_verdict" if review.value is None else "approved" if verdict.approve else "rejected"
    body = {
        "stage": case.stage,
        "attempt": case.attempt,
        "of": case.digest,
        "edit": canary.edit,
        "packet": digest,
        "verdict": session.store.put_value(verdict),
        "reviewer": reviewer.name,
        "outcome": outcome,
    }
    recorded = session.trail.append(CanaryEntry.model_validate(body | facts), key)
    ledger.settle(session.trail, facts["reservation"], recorded.body.usd)


def _ask_reviewer(
    session: Session, reviewer: PaidReviewer, packet: Packet, digest: str, key: str
) -> ModelOutcome[Verdict]:
    """Ask a paid reviewer; someone may stop the session while its API is waited for, which costs what came before."""
    try:
        return reviewer.ask(packet, digest)
    except (PauseSignal, CancelSignal):
        ledger.settle(session.trail, key, session.reviewing.waiting_usd)
        raise


def _record(case: _Case, answer: ReviewerAnswer, facts: dict[str, Any], member: str = "") -> _Judged:
    try:
        return _settle_cost(case.session, _append_verdict(case, answer, facts, member))
    except ReviewerUnavailable as failed:
        if answer.reviewer == PERSON or "same_as" in facts:
            # For a repeated verdict the caller tries the next process.
            raise
        # The process that gave it is gone, and no other may sign it.
        lost = ReviewerAnswer(answer.reviewer, None, no_verdict_of(failed))
        facts = {name: value for name, value in facts.items() if name != "members"}
        return _settle_cost(case.session, _append_verdict(case, lost, facts, member))


def _append_verdict(case: _Case, answer: ReviewerAnswer, facts: dict[str, Any], member: str) -> _Judged:
    session, verdict = case.session, answer.verdict
    # Masked as the trail will hold it, because the reviewer's process signs these words.
    why = without_secrets(answer.no_verdict, current()) if answer.no_verdict else None
    if verdict is None:
        assert why is not None
        verdict = no_verdict(answer.reviewer, why)
        if answer.reviewer != PERSON:
            reviewer_proxy.no_verdict(session.reviewing, case.digest, answer.reviewer, why)
    body = {
        "stage": case.stage,
        "attempt": case.attempt,
        "packet": case.digest,
        "verdict": session.store.put_value(verdict),
        "error": str(why) if why else "",
        "reviewer": answer.reviewer,
    }
    if why:
        body["cause"] = why.cause
    return session.trail.append(VerdictEntry.model_validate(body | facts), f"{case.key}{member}")


def _settle_cost(session: Session, judged: _Judged) -> _Judged:
    """Settle the cost of a verdict from its entry: a process may have died between the two."""
    if judged.body.reservation is not None:
        ledger.settle(session.trail, judged.body.reservation, judged.body.usd)
    return judged


def exchange_facts(store: Store, exchange: ReviewExchange) -> dict[str, Any]:
    """Keep both bodies of an exchange and return the trail's facts about it."""
    return facts_of(exchange, store.put_text)


def _spoken(session: Session, *parts: object) -> messages.Spoken:
    """Return a recorded verdict as it was signed, so that the reviewer's process can check it."""
    payload, signatures = session.trail.envelope(VerdictEntry.key_of(*parts))
    verdict = session.store.get(session.entry(VerdictEntry, *parts).verdict)
    return messages.Spoken(payload=payload, signatures=signatures, verdict=verdict.decode())
