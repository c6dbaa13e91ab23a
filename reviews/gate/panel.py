"""A panel: the verdicts of several reviewers as one, without a vote that could outweigh evidence.

The merged verdict holds every finding, so one member's blocking finding that points at evidence closes the gate. The
quorum says how many members must approve, and how many must answer. If members disagree about a blocking finding, a
person decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from specs.trail.gate_bodies import VerdictEntry
from specs.trail.verdict import HELP, Condition, Finding, NoVerdict, Verdict, Vote

if TYPE_CHECKING:
    from reviews.gate.reviewer import PacketReviewer

NAME = "panel"


@dataclass(frozen=True)
class ReviewPanel:
    """The members, how many must approve, and who is asked too when they disagree."""

    members: tuple[PacketReviewer, ...]
    quorum: int
    tie_breaker: PacketReviewer | None = None
    name: str = NAME


class ReviewerAnswer(NamedTuple):
    """A reviewer's verdict, or the reason why it is missing."""

    reviewer: str
    verdict: Verdict | None
    """For a panel that did not answer: what its members said."""
    no_verdict: NoVerdict | None = None


def member_answer(store: Store, judged: RecordedEntry[VerdictEntry]) -> ReviewerAnswer:
    """Return what a member said, from its entry."""
    verdict = Verdict.model_validate(store.get_value(judged.body.verdict))
    return ReviewerAnswer(judged.body.reviewer, None if verdict.no_verdict else verdict, verdict.no_verdict)


def merge(answers: Sequence[ReviewerAnswer], quorum: int) -> Verdict:
    """Return one verdict that holds everything the members said."""
    pairs = [(answer.reviewer, answer.verdict) for answer in answers if answer.verdict is not None]
    findings: list[Finding] = []
    conditions: list[Condition] = []
    for number, (reviewer, verdict) in enumerate(pairs, 1):
        findings += [
            finding.model_copy(update={"id": f"{number}-{finding.id}", "statement": f"{reviewer}: {finding.statement}"})
            for finding in verdict.findings
        ]
        conditions += [condition for condition in verdict.conditions if condition not in conditions]
    approvals = sum(verdict.approve for _, verdict in pairs)
    return Verdict(
        reviewer=NAME,
        findings=tuple(findings),
        recommendation="; ".join(f"{reviewer}: {verdict.recommendation}" for reviewer, verdict in pairs) or "none",
        reasoning="\n".join(f"{reviewer}: {verdict.reasoning}" for reviewer, verdict in pairs) or "no one answered",
        risks=tuple(dict.fromkeys(risk for _, verdict in pairs for risk in verdict.risks)),
        conditions=tuple(conditions),
        approve=approvals >= quorum,
        # Only what no member could judge was not judged.
        not_judged=tuple(
            text
            for text in (pairs[0][1].not_judged if pairs else ())
            if all(text in verdict.not_judged for _, verdict in pairs)
        ),
        votes=tuple(
            Vote(
                reviewer=answer.reviewer,
                approve=None if answer.verdict is None else answer.verdict.approve,
                verdict=None if answer.verdict is None else answer.verdict.content_digest(),
                error=answer.no_verdict.what if answer.no_verdict else "",
            )
            for answer in answers
        ),
        quorum=quorum,
        no_verdict=_too_few(answers, quorum),
    )


def _too_few(answers: Sequence[ReviewerAnswer], quorum: int) -> NoVerdict | None:
    """Return why the panel has no verdict; None when it has one."""
    silent = [answer for answer in answers if answer.verdict is None]
    if len(answers) - len(silent) >= quorum:
        return None
    gave = f"{len(answers) - len(silent)} of {len(answers)} members of the panel gave a verdict, {quorum} required"
    why = [f"{answer.reviewer}: {answer.no_verdict.what if answer.no_verdict else 'nothing'}" for answer in silent]
    return NoVerdict(cause="no_quorum", what="; ".join([gave, *why]), help=HELP["no_quorum"])


def disagree(verdict: Verdict) -> bool:
    """Return whether some members approve and others do not."""
    return len({vote.approve for vote in verdict.votes if vote.approve is not None}) > 1
