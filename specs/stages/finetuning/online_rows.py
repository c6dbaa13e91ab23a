"""Raw rows of the kinds that train on what the model writes itself."""

from __future__ import annotations

from specs.stages.base.artifacts import OfSample
from specs.stages.base.sampling import Finish, Ids, Share
from specs.stages.finetuning.rows import TrainingRow
from specs.system.digests import Contract, Count, Positive, Quantity, omit_default


class ChannelStep(Contract):
    """What one channel did in a step."""

    loss: float
    """Before its weight, summed over the passes of the step."""
    rows: Count
    """Answers, or pairs, that it learned from: of GRPO those whose advantage is not 0."""
    tokens: Count
    grad_norm: Quantity
    """The gradient norm of its weighted loss: the root of the summed squares of its passes."""


class RolloutStep(TrainingRow):
    """One optimizer step; ``tokens`` are those of all answers of the step."""

    kl: float | None
    """Mean of a token, in nats, from the granted model; None where nothing weighs it."""
    entropy: Quantity | None
    """Mean of a token, in nats, of the distribution that was sampled from."""
    clipped: Share | None
    """Tokens whose ratio left the clipping range."""
    channels: dict[str, ChannelStep]


class Rollout(OfSample):
    """One answer that was trained on, with what it was worth."""

    unique_by = ("step", "item", "sample")

    step: Positive
    """The first optimizer step that it was used in."""
    text: str
    finish: Finish
    answer_ids: Ids
    end_id: Count | None
    """The end token, if the model produced it."""
    verified: bool
    """What the task's verifier said of it."""
    rewards: dict[str, float]
    reward: float
    """The weighted sum."""
    advantage: float
    hint: str | None = omit_default()
    """What the teacher of this answer read next to its prompt."""
    span: tuple[Count, Count] | None = omit_default()
    """The characters that the hint is about, where only their tokens were learned from: first, and after the last."""
    span_tokens: tuple[Count, Count] | None = omit_default()
    """The places of these tokens in ``answer_ids``: the first, and after the last."""


class KeptAnswer(Contract):
    """The greedy answers to a prompt that was kept out of training, before and after it."""

    unique_by = ("item",)

    item: str
    group: str
    before: str
    before_ids: Ids
    before_finish: Finish
    after: str
    after_ids: Ids
    after_finish: Finish
