"""A session in retrospect: how ship-% moved, which defects it met, and what became of an audit's recommendations."""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

from reviews.acceptance.criterion_state import Acceptance, acceptance_of
from reviews.history.history import History
from reviews.history.recorded_history import is_in_force
from sessions.pages.acceptance.siblings import Sibling, siblings_of
from specs.system.errors import UserError
from specs.system.text import plain
from specs.trail.audit_file import AuditFile, AuditRecommendation
from specs.trail.gate_bodies import AmendmentEntry

Answer = Literal["adopted", "rejected", "open"]


class RecommendationOutcome(NamedTuple):
    """A recommendation and what was done with it."""

    id: str
    text: str
    answer: Answer
    why: str
    evidence: tuple[str, ...]
    """Entries of the trail, or digests."""


class Retrospective(NamedTuple):
    """What a session says of itself in the end."""

    acceptance: Acceptance
    siblings: tuple[Sibling, ...]
    audit: str
    """Whose recommendations these are; empty without an audit."""
    recommendations: tuple[RecommendationOutcome, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as ``retrospective --json`` shows it."""
        counts = {
            answer: sum(recommendation.answer == answer for recommendation in self.recommendations)
            for answer in _ANSWERS
        }
        audit = {
            "audit": self.audit,
            "counts": counts,
            "recommendations": [recommendation._asdict() for recommendation in self.recommendations],
        }
        return self.acceptance.as_json() | {"siblings": [sibling._asdict() for sibling in self.siblings]} | audit


_ANSWERS: tuple[Answer, ...] = ("adopted", "rejected", "open")


def retrospective_of(history: History, audit: AuditFile | None) -> Retrospective:
    """Return a session in retrospect.

    Raises:
        UserError: the audit names a criterion that the session did not register.
        EvidenceMissing: as :func:`acceptance_of`.
    """
    acceptance = acceptance_of(history)
    rows = (
        tuple(
            _reconcile_recommendation(history, acceptance, recommendation) for recommendation in audit.recommendations
        )
        if audit
        else ()
    )
    return Retrospective(acceptance, tuple(siblings_of(history)), audit.audit if audit else "", rows)


def _reconcile_recommendation(
    history: History, acceptance: Acceptance, recommendation: AuditRecommendation
) -> RecommendationOutcome:
    states = {state.criterion.id: state for state in acceptance.criteria}
    if recommendation.criterion is not None and recommendation.criterion not in states:
        known = ", ".join(states) or "none"
        raise UserError(
            f"recommendation '{recommendation.id}' names the criterion '{recommendation.criterion}'",
            hint=f"registered: {known}",
        )
    in_force = filter(is_in_force, history.of(AmendmentEntry))
    amended = [entry for entry in in_force if _names(entry.body.reason, recommendation.id)]
    evidence = [f"entry {entry.seq} ({entry.kind})" for entry in amended]
    whys = [f"amended: {plain(entry.body.reason, 200)}" for entry in amended]
    criterion = states[recommendation.criterion] if recommendation.criterion is not None else None
    if criterion is not None and criterion.proof is not None:
        evidence += [f"entry {criterion.proof.entry} (decision)", criterion.proof.evidence]
        whys.append(f"{criterion.criterion.id} is discharged: {criterion.proof.description}")
    # A criterion that nothing discharged outweighs an amendment: it says what the recommendation comes to.
    adopted = criterion.proof is not None if criterion is not None else bool(amended)
    if adopted:
        return RecommendationOutcome(
            recommendation.id, recommendation.text, "adopted", "; ".join(whys), tuple(evidence)
        )
    if recommendation.rejected is not None:
        return RecommendationOutcome(
            recommendation.id, recommendation.text, "rejected", recommendation.rejected, tuple(evidence)
        )
    missing = [f"{criterion.criterion.id} is {criterion.state}: {criterion.why}"] if criterion is not None else []
    why = "; ".join([*whys, *missing]) or "no criterion is named, and no amendment in force names it in its reason"
    return RecommendationOutcome(recommendation.id, recommendation.text, "open", why, tuple(evidence))


def _names(reason: str, id: str) -> bool:
    return re.search(rf"(?<![A-Za-z0-9._-]){re.escape(id)}(?![A-Za-z0-9_-])", reason) is not None
