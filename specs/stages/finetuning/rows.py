"""Raw rows of the kinds that train."""

from __future__ import annotations

from specs.digests import Contract, Count, Positive, Quantity
from specs.stages.label_scores import LogProbability
from specs.stages.sampling import Share


class TrainingRow(Contract):
    """One optimizer step as the trainer logged it."""

    step: Positive
    epoch: Quantity
    loss: float
    learning_rate: Quantity
    grad_norm: Quantity
    tokens: Count


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
