"""The scores of two labels, and the verdict they give."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from specs.system.digests import Contract, Digest, Positive

Label = Literal["A", "B"]

Agreement = Literal["both", "mean"]

LogProbability = Annotated[float, Field(le=0)]
"""In nats."""

DIGITS = 6
"""Decimals of a stated log-probability or margin."""

TOLERANCE = 2 * 10**-DIGITS


class LabelScores(Contract):
    """Next-token log-probabilities of the labels after one prompt, each without and with a leading space.

    None where the tokenizer writes that form with several tokens.
    """

    a: LogProbability | None
    a_spaced: LogProbability | None
    b: LogProbability | None
    b_spaced: LogProbability | None
    prompt: Digest
    """Of the prompt's text, before any chat template."""
    prompt_tokens: Positive

    def of(self, label: Label) -> float:
        """Return the larger log-probability of a label's forms; raises ValueError if neither is a single token."""
        forms = (self.a, self.a_spaced) if label == "A" else (self.b, self.b_spaced)
        if not (log_probabilities := [form for form in forms if form is not None]):
            raise ValueError(f"the label {label} has no log-probability")
        return max(log_probabilities)

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

    def compute_margin(self) -> float:
        """Return log p(good) - log p(bad), in nats; raises ValueError if a label has no log-probability."""
        difference = self.scores.of("A") - self.scores.of("B")
        return difference if self.good_label == "A" else -difference


def arrangement(scores: LabelScores, good_label: Label, margin: float) -> Arrangement:
    """Return the verdict that follows, a tie being "bad"; raises ValueError if a label has no log-probability."""
    signed = scores.of("A") - scores.of("B")
    signed = signed if good_label == "A" else -signed
    stated = round(abs(signed), DIGITS)
    return Arrangement(scores=scores, good_label=good_label, good=signed > 0, margin=stated, confident=stated >= margin)


def decide(plain: Arrangement, swapped: Arrangement, agreement: Agreement, margin: float) -> bool | None:
    """Return True for "good", False for "bad", None for an abstention.

    ``both``: both orders give one verdict, each with the margin. ``mean``: the mean signed margin reaches it.

    Raises:
        ValueError: a label has no log-probability.
    """
    if agreement == "both":
        if plain.good != swapped.good or not (plain.confident and swapped.confident):
            return None
        return plain.good
    mean = (plain.compute_margin() + swapped.compute_margin()) / 2
    return mean > 0 if round(abs(mean), DIGITS) >= margin and mean != 0 else None
