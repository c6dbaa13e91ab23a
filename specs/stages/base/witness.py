"""What a witness records for each answer and score it recomputed, and how far two honest readings may differ.

The job's answers are forced through the granted weights, so nothing is sampled twice: each token of a greedy answer
must have the largest logit, each token of a sampled one must look drawn from the granted distribution.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from specs.system.digests import Contract, Count, Digest, Positive

ROWS = "witness"
"""The name of a witness's file of rows."""
MISSED_SHARE = 0.05
"""Rows are drawn so that a job with this share of rows made otherwise ..."""
CONFIDENCE = 0.95
"""... is found out with this probability."""
ROWS_ON_GPU = 400
"""Rows of a file that are read on a GPU, or all if it has fewer: finds 1 % of wrong rows with a probability of 98 %."""
SAMPLED_TOKENS = 1500
"""Of sampled answers, enough rows are drawn to hold about this many tokens, because few rows show how they were drawn.
Measured by ``python -m bench.witness_samples``."""

REPLAYED_SHARE = 0.1
"""The share of training steps that a witness replays: half is the opening, the rest is drawn between snapshots."""
FIRST_STEPS = 2
"""Steps of the opening at least."""
LEAST_SHARE = 0.25
"""The share of an attempt's time limit that a witness gets at least. It also gets the job's remaining time."""

GREEDY_GAP: dict[str, float] = {"float32": 1e-3, "bfloat16": 0.5}
"""By the type of the weights, how far below the largest logit a greedily chosen token may be read: batches and padding
change the order of sums. Measured on honest answers by ``python -m bench.witness``."""
NUCLEUS: dict[str, float] = {"float32": 1e-3, "bfloat16": 0.1}
"""Likewise, how far past the border of the nucleus the probability before a sampled token may reach."""
FALSE_ALARM = 1e-4
"""The share of honest stages that the tests of their sampled answers may fail at most, all of them together."""
TILTS = (0.5, 0.7, 0.85, 0.95, 1.05, 1.2, 1.5, 2.5)
"""Other temperatures that the drawn tokens are compared with, as powers of the granted distribution: the granted
temperature divided by the other one."""

SCORE_GAP: dict[str, float] = {"float32": 1e-3, "bfloat16": 0.5}
"""By the type of the weights, how many nats the log-probability of a token may be read apart; of n tokens together
the square root of n times as many. Measured by ``python -m bench.witness_scores``."""
SCORE_SPREAD: dict[str, float] = {"float32": 2e-4, "bfloat16": 0.15}
"""The same of all scores together, as the root of their mean square: it finds weights that differ a little."""
SPREAD_ROWS = 16
"""It is not computed over fewer rows, because chance moves it too far."""


class ReplayTolerance(NamedTuple):
    """How far a step may be from the same step trained again, as shares: honest repeats differ in the order of sums."""

    loss: float
    gradient: float
    """The tolerance of the gradient norm."""
    update: float
    """The tolerance of the movement of single weights. Wide, because Adam moves a weight by the sign of a noisy
    gradient."""


REPLAYED: dict[str, ReplayTolerance] = {
    "float32": ReplayTolerance(1e-3, 1e-2, 0.25),
    "bfloat16": ReplayTolerance(0.02, 0.1, 0.5),
}
"""By the type of the weights. Measured by ``python -m bench.witness_training``, with the instructions of another
processor too: adapters of a tiny model then move 0.08 apart."""
SAVED_APART = 1e-5
"""The tolerance of their norm. Saved weights are the trained ones, bit by bit, but a sum depends on its order."""
MERGED_APART: dict[str, float] = {"float32": 1e-5, "bfloat16": 0.006}
"""The tolerance of a merged layer from base plus adapters, by the type of the weights: one rounding."""
PAIR_APART: dict[str, float] = {"float32": 1e-3, "bfloat16": 0.05}
"""The tolerance of a response's log-probability in other batches."""
LOSS_FACTOR, LOSS_SPARE = 2.0, 0.2
"""How many times as large as the end of the curve, and nats more, the loss of the saved weights may be on examples they
were trained on."""

Finite = Annotated[float, Field(allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1.000001)]


class Token(Contract):
    """One sampled token under the granted distribution, cut to its nucleus."""

    before: Probability
    """The probability of all tokens that are likelier."""
    own: Probability
    tilted: Annotated[tuple[Finite, ...], Field(min_length=len(TILTS), max_length=len(TILTS))]
    """For each of :data:`TILTS`, the logarithm of the sum of the distribution's probabilities to that power."""


class Copies(Contract):
    """How many other answers to the same prompt are the same, token by token.

    Of two answers that were both recomputed, only the later counts the other.
    """

    of: Positive
    same: Count


class WitnessRow(Contract):
    """One answer as the granted weights read it."""

    unique_by = ("row", "part")

    row: Count
    """Its place in the job's file of rows, from 0."""
    part: str = ""
    """Which answer of the row, where it holds several."""
    tokens: Count
    """Tokens that were chosen, the end token included."""
    text: bool
    """Whether the row's text is that of its token ids."""
    ending: bool
    """Whether an answer of these ids ends here and as the row says."""
    prompt: bool = True
    """Whether the row states this prompt, as far as it states one: its length, and the digest of its token ids."""
    again: bool = False
    """Whether it is due to repeat another row, drawn by the same random numbers: it then says nothing more of them."""
    gap: Annotated[Finite, Field(ge=0)] | None
    """How far its worst token is below the largest logit; None for a sampled answer whose noise is not known."""
    noise: bool = False
    """For a sampled answer: whether the logits that ``gap`` compares hold the noise of the granted seed."""
    beyond: Finite | None = None
    """For a sampled answer: how far its worst token lies outside the nucleus; negative inside."""
    drawn: tuple[Token, ...] | None = None
    """The tokens of a sampled answer whose noise is not known, in order."""
    copies: Copies | None = None
    """For a sampled answer; None if no other answer to its prompt counts."""


class Score(Contract):
    """The log-probability of some tokens, in nats."""

    stated: Finite
    """The value in the row of the job."""
    read: Finite
    """The value from the granted weights."""
    tokens: Positive


class ScoredRow(Contract):
    """One row of scores as the granted weights give them; a line next to those of answers."""

    unique_by = ("output", "row")

    output: str
    """The job's file of rows that it is in."""
    row: Count
    """Its place in that file, from 0."""
    differs: tuple[str, ...]
    """What of the row, its scores left out, is not what the granted inputs, or its own scores, make it."""
    scores: dict[str, Score]


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
    """The digest of the prompt's text, before any chat template."""
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
