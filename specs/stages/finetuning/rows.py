"""Raw rows of the kinds that train."""

from __future__ import annotations

from specs.stages.base.sampling import Share
from specs.stages.base.witness import LogProbability
from specs.system.digests import Contract, Count, Positive, Quantity, omit_default


class TrainingRow(Contract):
    """One optimizer step as the trainer logged it."""

    step: Positive
    epoch: Quantity
    loss: float
    learning_rate: Quantity
    grad_norm: Quantity
    tokens: Count
    batches: tuple[str, ...] = omit_default(())
    """Digests of the token ids and masks of its batches."""
    sketch: tuple[float, ...] = omit_default(())
    """The norm of all trained weights after the step, then a few of them, drawn by their names."""


class PreferenceStep(TrainingRow):
    """One optimizer step; ``tokens`` are those of the responses of both sides.

    Rewards are those of the trainer's loss; None where no response of that side was in it.
    """

    chosen_reward: float | None = None
    rejected_reward: float | None = None
    margin: float | None = None
    accuracy: Share | None = None


class PairScore(Contract):
    """One pair that was not trained on, scored by the model before and after training."""

    unique_by = ("pair",)

    pair: Count
    """Its line in the input file, counted from 0."""
    group: str
    chosen_tokens: Positive
    rejected_tokens: Positive
    chosen_before: LogProbability
    rejected_before: LogProbability
    chosen_after: LogProbability
    rejected_after: LogProbability


class ValidationRow(Contract):
    """An example that was not trained on, as the model read it after a step."""

    unique_by = ("step", "example")

    step: Count
    """0: before the first."""
    example: Count
    """Its line in the input file, counted from 0."""
    group: str
    tokens: Count
    """Tokens of the response; 0 if the prompt alone fills ``max_length``."""
    correct: Count
    """Those of them that the model ranks first."""
    log_probability: LogProbability


class PairReading(Contract):
    """A pair that was not trained on, as the model read it after a step; sums over the tokens of each response."""

    unique_by = ("step", "pair")

    step: Count
    """0: before the first."""
    pair: Count
    """Its line in the input file, counted from 0."""
    chosen: LogProbability
    rejected: LogProbability


class ReplayedStep(Contract):
    """One optimizer step as a witness made it again."""

    unique_by = ("step",)

    step: Positive
    loss: float
    learning_rate: Quantity
    grad_norm: Quantity
    tokens: Count
    batches: tuple[str, ...]
    before: tuple[float, ...]
    """The sketch of the weights that the step begins with."""
    sketch: tuple[float, ...]
