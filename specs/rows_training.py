"""Raw rows of preference training: one for each optimizer step, and one for each pair that was kept out of training.

A supervised stage leaves :class:`specs.evidence.TrainingRow`. Log-probabilities are sums over the tokens of the
response, in nats. The steps state what the trainer saw; the scores of pairs are what metrics are computed from.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from specs.digests import Contract


class PreferenceStep(Contract):
    """One optimizer step. Rewards are those of the trainer's loss; None where no response of that side was in it."""

    step: int
    epoch: float
    loss: float
    learning_rate: float
    grad_norm: float
    tokens: int
    """Response tokens of both sides, prompts left out."""
    chosen_reward: float | None = None
    rejected_reward: float | None = None
    margin: float | None = None
    accuracy: float | None = None


class PairScore(Contract):
    """One pair that was not trained on, scored by the model before and after training."""

    pair: Annotated[int, Field(ge=0)]
    """Its line in the input file, counted from 0."""
    group: str
    chosen_tokens: Annotated[int, Field(ge=1)]
    rejected_tokens: Annotated[int, Field(ge=1)]
    chosen_before: float
    rejected_before: float
    chosen_after: float
    rejected_after: float
