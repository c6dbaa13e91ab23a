"""Rows of critics, revisions and preferences: the prompt, the log-probabilities, and what follows from them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from specs.stages.base.artifacts import OfSample, Preference
from specs.stages.base.sampling import Finish, Ids
from specs.stages.base.witness import TOLERANCE, Agreement, Arrangement, arrangement, decide
from specs.system.digests import Contract, Count, Digest, omit_default


class CritiqueRow(Contract):
    """One instruction, or one response to it, as an A/B critic scored it in both orders of the labels."""

    item: str
    group: str
    kind: str
    sample: Count | None
    """Which of several responses to the item; None for an instruction."""
    instruction: str
    response: str | None
    shown_response: str | None
    """What of the response the critic was shown; None for an instruction."""
    rubric: Digest
    plain: Arrangement
    swapped: Arrangement
    accepted: bool


class CalibrationRow(CritiqueRow):
    """A row with the judgement of a person: what the critic is measured against before its numbers count."""

    label: Literal["good", "bad"]


class ComparisonRow(Contract):
    """Two responses to one instruction as a judge compared them, in both orders."""

    item: str
    group: str
    instruction: str
    first: str
    second: str
    first_sample: Count
    second_sample: Count
    shown_first: str
    shown_second: str
    rubric: Digest
    plain: Arrangement
    swapped: Arrangement
    preferred: Literal["first", "second"] | None
    """None: the judge abstains."""


class JudgeCalibrationRow(ComparisonRow):
    """A comparison with the judgement of a person."""

    label: Literal["first", "second"]


def contradiction(row: CritiqueRow | ComparisonRow, agreement: Agreement, margin: float) -> str | None:
    """Return how a row's verdict does not follow from its log-probabilities (it is not evidence then), else None."""
    for name, stated, label in (("plain", row.plain, "A"), ("swapped", row.swapped, "B")):
        if stated.good_label != label:
            return f"{name}: 'good' is {stated.good_label} instead of {label}"
        try:
            expected = arrangement(stated.scores, stated.good_label, margin)
        except ValueError as error:
            return f"{name}: {error}"
        if abs(expected.margin - stated.margin) > TOLERANCE:
            return f"{name}: margin {stated.margin:g} is stated, {expected.margin:g} follows"
        if (expected.good, expected.confident) != (stated.good, stated.confident):
            message = f"good {stated.good}, confident {stated.confident}"
            return f"{name}: {message} is stated, good {expected.good}, confident {expected.confident} follows"
    verdict = decide(row.plain, row.swapped, agreement, margin)
    if isinstance(row, CritiqueRow):
        accepted = verdict is True
        return None if row.accepted == accepted else f"accepted {row.accepted} is stated, {accepted} follows"
    preferred = {True: "first", False: "second", None: None}[verdict]
    return None if row.preferred == preferred else f"{row.preferred} is stated as preferred, {preferred} follows"


RevisionFault = Literal["empty", "short", "truncated", "refusal", "unchanged", "copied"]


class RevisionRound(Contract):
    """One critique by one principle, and the revision it led to; every text as it was written."""

    principle: str
    category: str
    critique_prompt: str
    critique: str
    critique_tokens: Count
    critique_finish: Finish
    critique_ids: Ids | None = omit_default()
    revision_prompt: str
    revision: str
    revision_tokens: Count
    revision_finish: Finish
    revision_ids: Ids | None = omit_default()
    """None, as those of the critique, in rows that were written before they were kept."""
    faults: tuple[RevisionFault, ...]
    """What is wrong with the revision, compared with the text it was made from."""


class RevisionRow(OfSample):
    """One chain: the original response, its rounds, and what came out of them."""

    unique_by = ("item", "sample")

    constitution: Digest
    instruction: str
    original: str
    rounds: tuple[RevisionRound, ...] = Field(min_length=1)
    final: str
    """The newest revision without a fault; the original if every revision has one."""
    usable: bool
    """Whether the last round has no fault and the chain does not end in the words it began with."""


class CandidateRow(OfSample):
    """One sampled response that may become the better or the worse half of a pair."""

    instruction: str
    prompt: str
    """All of what the model read."""
    response: str
    tokens: Count
    finish: Finish
    answer_ids: Ids | None = omit_default()
    """None in rows that were written before they were kept."""


class VerifiedRow(Contract):
    """What the task's verifier says of one sample. A sample that the token limit ended is neither."""

    item: str
    sample: Count
    verdict: Literal["accepted", "refused", "truncated"]


DropReason = Literal["fault", "length_ratio", "original_preferred", "no_preference", "surplus", "length_balance"]
"""``fault``: no whole pair. ``length_ratio``, ``length_balance``: its lengths. ``original_preferred``,
``no_preference``: the judge's answer. ``surplus``: the prompt has its pairs."""


class DroppedPair(Contract):
    """A pair that was made and is not kept: a line of ``dropped``."""

    reason: DropReason
    """The first that spoke against it."""
    pair: Preference
