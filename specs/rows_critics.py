"""Rows of critics, revisions and preferences: what was asked, the log-probabilities, and what follows from them.

What follows is stated in the rows and computed again by :func:`contradiction`: a row whose verdict does not follow from
its own log-probabilities is no evidence. A critique without log-probabilities does not even have the form of a row.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from specs.digests import Contract, Count, Digest, Positive
from specs.rows_text import Finish

Label = Literal["A", "B"]
Agreement = Literal["both", "mean"]
LogProbability = Annotated[float, Field(le=0)]
"""In nats."""
DIGITS = 6
"""Decimals of a stated log-probability or margin."""
TOLERANCE = 2 * 10**-DIGITS


class LabelScores(Contract):
    """Next-token log-probabilities of the labels after one prompt, each without and with a leading space.

    None where the tokenizer writes that form with several tokens: then it is no single next token.
    """

    a: LogProbability | None
    a_spaced: LogProbability | None
    b: LogProbability | None
    b_spaced: LogProbability | None
    prompt: Digest
    """Of the prompt's text, before any chat template."""
    prompt_tokens: Positive

    def of(self, label: Label) -> float:
        """Return the log-probability of a label: the larger of its two forms.

        Raises:
            ValueError: neither form is a single token.
        """
        forms = (self.a, self.a_spaced) if label == "A" else (self.b, self.b_spaced)
        given = [form for form in forms if form is not None]
        if not given:
            raise ValueError(f"the label {label} has no log-probability")
        return max(given)

    def mass(self) -> float:
        """Return the probability that the next token is one of the labels, in any form."""
        forms = (self.a, self.a_spaced, self.b, self.b_spaced)
        return min(1.0, sum(math.exp(form) for form in forms if form is not None))


class Arrangement(Contract):
    """One order of the labels: its log-probabilities and the verdict that was stated from them.

    For comparisons of two responses, "good" means that the first one is preferred.
    """

    scores: LabelScores
    good_label: Label
    """The label that meant "good" in this prompt."""
    good: bool
    margin: Annotated[float, Field(ge=0)]
    """|log p(A) - log p(B)|, in nats."""
    confident: bool

    def signed(self) -> float:
        """Return log p(good) - log p(bad), in nats.

        Raises:
            ValueError: a label has no log-probability.
        """
        difference = self.scores.of("A") - self.scores.of("B")
        return difference if self.good_label == "A" else -difference


def arrangement(scores: LabelScores, good_label: Label, margin: float) -> Arrangement:
    """Return the verdict that follows from log-probabilities: a tie is "bad".

    Args:
        scores: of one prompt.
        good_label: the label that means "good" in it.
        margin: the least margin of a confident verdict, in nats.

    Raises:
        ValueError: a label has no log-probability.
    """
    signed = scores.of("A") - scores.of("B")
    signed = signed if good_label == "A" else -signed
    stated = round(abs(signed), DIGITS)
    return Arrangement(scores=scores, good_label=good_label, good=signed > 0, margin=stated, confident=stated >= margin)


def decide(plain: Arrangement, swapped: Arrangement, agreement: Agreement, margin: float) -> bool | None:
    """Return True for "good", False for "bad", None for an abstention.

    ``both``: both orders of the labels give the same verdict, each with the margin. ``mean``: the mean of the two
    signed margins reaches the margin; a liking for one label then cancels out.

    Raises:
        ValueError: a label has no log-probability.
    """
    if agreement == "both":
        if plain.good != swapped.good or not (plain.confident and swapped.confident):
            return None
        return plain.good
    mean = (plain.signed() + swapped.signed()) / 2
    return mean > 0 if round(abs(mean), DIGITS) >= margin and mean != 0 else None


class CritiqueRow(Contract):
    """One instruction, or one response to it, as an A/B critic scored it in both orders of the labels."""

    item: str
    group: str
    kind: str
    sample: Count | None
    """Which of several responses to the item; None for an instruction."""
    instruction: str
    response: str | None
    shown: str | None
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
    """Return how a row's stated verdict does not follow from its own log-probabilities; None where it does.

    Args:
        row: as the job wrote it.
        agreement: how the two orders are combined, as granted.
        margin: as granted, in nats.
    """
    for name, given, label in (("plain", row.plain, "A"), ("swapped", row.swapped, "B")):
        if given.good_label != label:
            return f"{name}: 'good' is {given.good_label} instead of {label}"
        try:
            due = arrangement(given.scores, given.good_label, margin)
        except ValueError as error:
            return f"{name}: {error}"
        if abs(due.margin - given.margin) > TOLERANCE:
            return f"{name}: margin {given.margin:g} is stated, {due.margin:g} follows"
        if (due.good, due.confident) != (given.good, given.confident):
            told = f"good {given.good}, confident {given.confident}"
            return f"{name}: {told} is stated, good {due.good}, confident {due.confident} follows"
    verdict = decide(row.plain, row.swapped, agreement, margin)
    if isinstance(row, CritiqueRow):
        accepted = verdict is True
        return None if row.accepted == accepted else f"accepted {row.accepted} is stated, {accepted} follows"
    preferred = {True: "first", False: "second", None: None}[verdict]
    return None if row.preferred == preferred else f"{row.preferred} is stated as preferred, {preferred} follows"


NegativeType = Literal[
    "unwarranted_refusal", "wrong_fact", "off_topic", "format_violation", "verbosity", "under_explanation"
]
RevisionFault = Literal["empty", "short", "truncated", "refusal", "unchanged"]


class RevisionRound(Contract):
    """One critique by one principle, and the revision it led to; every text as it was written."""

    principle: str
    category: str
    critique_prompt: str
    critique: str
    critique_tokens: Count
    critique_finish: Finish
    revision_prompt: str
    revision: str
    revision_tokens: Count
    revision_finish: Finish
    faults: tuple[RevisionFault, ...]
    """What is wrong with the revision, compared with the text it was made from."""


class RevisionRow(Contract):
    """One chain: the original response, its rounds, and what came out of them."""

    unique_by = ("item", "sample")

    item: str
    group: str
    kind: str
    sample: Count
    constitution: Digest
    instruction: str
    original: str
    rounds: tuple[RevisionRound, ...] = Field(min_length=1)
    final: str
    """The newest revision without a fault; the original where there is none."""
    usable: bool
    """Whether the last round has no fault and the chain does not end in the words it began with."""


class CandidateRow(Contract):
    """One sampled response that may become the better or the worse half of a pair."""

    item: str
    group: str
    kind: str
    sample: Count
    instruction: str
    prompt: str
    """All of what the model read."""
    response: str
    tokens: Count
    finish: Finish


class VerifiedRow(Contract):
    """What the task's verifier says of one sample. A sample that the token limit ended is neither."""

    item: str
    sample: Count
    verdict: Literal["accepted", "refused", "truncated"]


class Preference(Contract):
    """One pair to learn from: a line of a ``preferences`` artifact.

    ``group`` is what a split may never divide: all pairs of it are on one side. Whoever brings pairs of their own gives
    the first four fields and ``source: given``.
    """

    prompt: Annotated[str, Field(min_length=1)]
    chosen: Annotated[str, Field(min_length=3)]
    rejected: Annotated[str, Field(min_length=3)]
    group: str
    source: Literal["revision", "best_of_n", "verified", "hard_negative", "given"]
    margin: Annotated[float, Field(ge=0)] | None = None
    """The judge's margin for the chosen response, in nats: the smaller of both orders. None: no judge compared them."""
    item: str | None = None
    """The instruction it belongs to."""
    split: Literal["train", "validation"] | None = None
    """None: whoever trains on it divides it, by group."""
    negative_type: NegativeType | None = None
    """What is wrong with the rejected response, where it was made wrong on purpose."""
    made_by: Literal["sample", "rule", "model"] | None = None
    """How the rejected response came to be: sampled like the chosen one, built by a rule, or written on request."""
    principles: tuple[str, ...] = ()
    """Ids of the principles a revision followed."""


DropReason = Literal["fault", "length_ratio", "original_preferred", "no_preference", "surplus", "length_balance"]
"""``fault``: no whole pair. ``length_ratio``: one response has too many times the words of the other.
``original_preferred``, ``no_preference``: what the judge of revisions says. ``surplus``: the prompt has its pairs.
``length_balance``: it went so that chosen and rejected are of like length on average."""


class DroppedPair(Contract):
    """A pair that was made and is not kept: a line of ``dropped``."""

    reason: DropReason
    """The first that spoke against it."""
    pair: Preference
