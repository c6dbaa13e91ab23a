"""What follows from the recorded entries of a session, for judges too; nothing here writes or verifies."""

from __future__ import annotations

from functools import cached_property
from typing import TypeGuard, cast

from reviews.history.attempt import Attempt
from reviews.history.entry_index import EntryIndex
from reviews.trail.chain.envelope import FormT, RecordedEntry
from specs.session.design import ResolvedDesign
from specs.system.errors import EvidenceMissing
from specs.trail.entry import DESIGN, OfAttempt
from specs.trail.gate_bodies import (
    AmendmentEntry,
    DecisionEntry,
    GrantEntry,
    HumanAnswerEntry,
    Opens,
    PlanEntry,
    RetractionEntry,
)
from specs.trail.session_bodies import CloseEntry, OpenEntry

Judgement = DecisionEntry | HumanAnswerEntry
"""What can open a stage."""


class RecordedHistory(EntryIndex):
    """The entries of a session's trail, with what follows from them."""

    # ---- what is registered

    @cached_property
    def opening(self) -> OpenEntry:
        """What was registered before anything else; raises EvidenceMissing without an ``open`` entry."""
        opened = self.find(OpenEntry)
        if opened is None:
            raise EvidenceMissing("the trail has no 'open' entry: nothing was registered")
        return opened.body

    @cached_property
    def newest_amendment(self) -> AmendmentEntry | None:
        """The newest changed design that a review, or a person over it, approved."""
        return next((entry.body for entry in reversed(self.of(AmendmentEntry)) if is_in_force(entry)), None)

    @property
    def registration(self) -> str:
        """The digest of the registration that is in force at the end of these entries."""
        return (self.newest_amendment or self.opening).registration

    @property
    def measured_by(self) -> str:
        """The digest of the measuring code that is registered at the end of these entries."""
        return self.newest_amendment.code if self.newest_amendment else self.opening.measured_by

    @property
    def is_exploratory(self) -> bool:
        """Return whether the design was changed after data had been seen."""
        return any(is_in_force(entry) and entry.body.exploratory for entry in self.of(AmendmentEntry))

    @property
    def is_closed(self) -> bool:
        """Return whether the session has ended."""
        return self.find(CloseEntry) is not None

    @property
    def resolved(self) -> ResolvedDesign:
        """The design that is registered at the end of these entries."""
        raise EvidenceMissing("the history was read without the spec that it registers")

    # ---- judgements

    @cached_property
    def retracted(self) -> frozenset[int]:
        """The numbers of the retracted judgements, and of the judgements that followed from them."""
        spans = [(entry.body.since, entry.seq) for entry in self.of(RetractionEntry)]
        judged = [entry.seq for entry in self.of(DecisionEntry, HumanAnswerEntry)]
        return frozenset(seq for seq in judged if any(first <= seq < last for first, last in spans))

    def standing_of(self, *forms: type[FormT]) -> list[RecordedEntry[FormT]]:
        """Return the entries of some kinds without the judgements that were taken back."""
        return [entry for entry in self.of(*forms) if entry.seq not in self.retracted]

    @property
    def judgements(self) -> list[RecordedEntry[Judgement]]:
        """The decisions and people's answers that were not taken back."""
        return self.standing_of(DecisionEntry, HumanAnswerEntry)

    @property
    def newest_judgement(self) -> RecordedEntry[Judgement | RetractionEntry] | None:
        """The newest decision, answer of a person or retraction; a retraction leaves nothing open."""
        return self.newest(DecisionEntry, HumanAnswerEntry, RetractionEntry)

    def newest_decision(self, stage: str) -> RecordedEntry[DecisionEntry] | None:
        """Return the newest decision of a stage's gate, whether or not it was taken back."""
        return next((entry for entry in reversed(self.of(DecisionEntry)) if entry.body.stage == stage), None)

    @property
    def opens(self) -> Opens | None:
        """The attempt that the newest judgement opens."""
        newest = self.newest_judgement
        return None if newest is None or isinstance(newest.body, RetractionEntry) else newest.body.opens

    # ---- attempts

    def attempt(self, stage: str, number: int) -> Attempt:
        """Return one attempt of a stage, whether or not anything of it is recorded."""
        return Attempt(self, stage, number)

    def attempt_of(self, body: OfAttempt | DecisionEntry | GrantEntry) -> Attempt:
        """Return the attempt that an entry is about; the gate of the design counts as a stage."""
        return Attempt(self, body.stage or DESIGN, body.attempt)

    def attempts(self, stage: str) -> list[Attempt]:
        """Return the attempts of a stage that were planned, in order."""
        plans = [entry.body for entry in self.of(PlanEntry) if entry.body.stage == stage]
        return [Attempt(self, stage, plan.attempt) for plan in plans]

    def next_attempt(self, stage: str) -> int:
        """Return the number of the next attempt of a stage: numbers only grow, whatever was taken back."""
        opened = [entry.body.opens for entry in self.of(DecisionEntry, HumanAnswerEntry)]
        return max((opens.attempt for opens in opened if opens and opens.stage == stage), default=0) + 1

    def accepted_attempt(self, stage: str) -> Attempt | None:
        """Return the attempt of a stage that opened the next one, by the gate or by a person over it."""
        judgements = [entry.body for entry in self.judgements if entry.body.stage == stage]
        accepted = [judgement for judgement in judgements if is_approval(judgement)]
        return Attempt(self, stage, accepted[-1].attempt) if accepted else None


def is_approval(judgement: Judgement) -> bool:
    """Return whether a gate, or a person over it, approved."""
    outcome = judgement.outcome if isinstance(judgement, DecisionEntry) else judgement.answer
    return outcome == "approve"


def is_in_force(entry: RecordedEntry) -> TypeGuard[RecordedEntry[AmendmentEntry]]:
    """Return whether an entry is an amendment that a review, or a person over it, approved."""
    if entry.kind != AmendmentEntry.KIND:
        return False
    body = cast(RecordedEntry[AmendmentEntry], entry).body
    return body.outcome == "approve" or body.overridden
