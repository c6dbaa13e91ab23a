"""The kinds that train on what the model writes itself: ``grpo``, ``sdpo``, and ``composer`` with three channels."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from specs.stages.base.stage import NotReadBack
from specs.stages.finetuning.parameters import ReplicatedParameters
from specs.system.digests import Contract, omit_default

Reward = Literal["verified", "ended", "length"]
"""1 if the task's verifier accepts the answer; 1 if it ended before the limit; its share of ``max_new_tokens``."""
Weight = Annotated[float, Field(ge=-100, le=100)]
Share = Annotated[float, Field(ge=0, le=100)]


class Channels(Contract):
    """The weight of each channel in the sum of losses; 0 leaves it out."""

    grpo: Share = 1.0
    sdpo: Share = 0.0
    dpo: Share = 0.0


class SelfDistillation(Contract):
    """The model learns from itself with feedback in the prompt (Hübotter et al. 2026, arXiv:2601.20802)."""

    beta: Annotated[float, Field(ge=0, le=1)] = 0.5
    """0: KL divergence from the teacher; 1: to the teacher; between: generalised Jensen-Shannon (arXiv:2306.13649)."""
    top_k: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Compare these tokens and one tail instead of the whole vocabulary: another objective, and named so."""
    feedback: Literal["verifier", "sibling", "both"] = "both"
    """What the teacher reads: the verifier's reason, a right answer of the same group, or that and else the reason."""
    target: Literal["answer", "span"] = omit_default("answer")
    """What is learned from: the tokens of the whole answer, or the tokens that the verifier's reason points at. With
    ``span``, nothing is learned from an answer whose reason points at none."""
    temperature: Annotated[float, Field(gt=0, le=100)] = omit_default(1.0)
    """Divides the logits of both before they are compared."""
    token_clip: Annotated[float, Field(gt=0)] | None = omit_default()
    """The most nats that one token counts; a token above them has no gradient."""

    @model_validator(mode="after")
    def _points_at(self) -> Self:
        if self.target == "span" and self.feedback != "verifier":
            raise ValueError(f"target 'span' needs feedback 'verifier', not '{self.feedback}': no other names a place")
        return self


class GrpoParameters(ReplicatedParameters):
    """Group-relative policy optimisation (Shao et al. 2024, arXiv:2402.03300) with TRL's ``GRPOTrainer``.

    The loss is averaged over the tokens of a step (Yu et al. 2025, arXiv:2503.14476).
    """

    learning_rate: Annotated[float, Field(ge=0, le=1)] = 1e-6
    rewards: Annotated[dict[Reward, Weight], Field(min_length=1)] = {"verified": 1.0}
    """Each reward's weight in the sum; a negative one punishes."""
    generations: Annotated[int, Field(ge=2, le=256)] = 8
    """Answers to a prompt, which are compared with each other."""
    batch_size: Annotated[int, Field(ge=1, le=1024)] = 8
    """Answers in one pass. ``batch_size`` times ``gradient_accumulation`` is a multiple of ``generations``."""
    max_new_tokens: Annotated[int, Field(ge=1, le=32768)] = 128
    temperature: Annotated[float, Field(gt=0, le=5)] = 1.0
    clip: Annotated[float, Field(gt=0, lt=1)] = 0.2
    kl_weight: Annotated[float, Field(ge=0, le=10)] = 0.04
    """The weight of the KL divergence from the granted model. 0 saves its copy in memory and leaves it unmeasured."""
    updates: Annotated[int, Field(ge=1, le=16)] = 1
    """Optimizer steps on the same answers."""
    scale_rewards: bool = True
    """Divide by the standard deviation of the group's rewards."""
    validation_share: Annotated[float, Field(ge=0, le=0.5), NotReadBack()] = 0.1
    """The share of groups of prompts kept out of training; they are answered before and after it."""
    silent_steps: Annotated[int, Field(ge=1, le=1000), NotReadBack()] = 10
    """The job ends where a channel has learned from no row in so many steps."""

    @property
    def weights(self) -> Channels:
        """The weight of each channel."""
        return Channels()

    @property
    def distillation(self) -> SelfDistillation:
        """How the channel of self-distillation learns, where it has a weight."""
        return SelfDistillation()

    @property
    def reads_pairs(self) -> bool:
        """Return whether ``pairs`` is an input."""
        return self.weights.dpo > 0

    def snapshots_of(self, steps: int) -> tuple[int, ...]:
        """Return after which of so many steps a snapshot is saved: never between updates on the same answers."""
        return tuple(value for value in super().snapshots_of(steps) if value % self.updates == 0)

    @model_validator(mode="after")
    def _rollouts_fit(self) -> Self:
        batch = self.batch_size * self.gradient_accumulation
        if batch % self.generations:
            raise ValueError(
                f"batch_size times gradient_accumulation is {batch}, not a multiple of generations ({self.generations})"
            )
        if self.method == "qlora":
            raise ValueError("method 'qlora' is for sft and dpo: answers are sampled from unrounded weights")
        if self.lora_dropout:
            raise ValueError(
                f"lora_dropout is {self.lora_dropout}: answers would come from other adapters than the trained ones"
            )
        if self.response_end is not None or self.response_start is not None:
            raise ValueError("response_start and response_end belong to given responses, and the model writes its own")
        if (self.checkpoint_steps or self.updates) % self.updates:
            raise ValueError(f"checkpoint_steps {self.checkpoint_steps} is not a multiple of updates ({self.updates})")
        if self.distributed is not None and self.distributed.sync_every % self.updates:
            raise ValueError(
                f"sync_every {self.distributed.sync_every} is not a multiple of updates ({self.updates}): weights "
                "would be synchronised between two updates on the same answers"
            )
        if all(weight == 0 for weight in self.rewards.values()):
            raise ValueError("every reward has weight 0")
        if self.weights.sdpo and self.distillation.feedback != "verifier" and "verified" not in self.rewards:
            raise ValueError("a right answer of the group is known only where 'verified' is among the rewards")
        return self


class SdpoParameters(GrpoParameters):
    """Self-distillation alone: the model learns from itself with feedback in the prompt, and from no reward.

    ``rewards`` are measured, and ``verified`` says which answers need feedback.
    """

    kl_weight: Annotated[float, Field(ge=0, le=0)] = 0.0
    """Belongs to the loss of GRPO, which has no part here."""
    self_distillation: SelfDistillation = SelfDistillation()

    @property
    def weights(self) -> Channels:
        """The weight of each channel."""
        return Channels(grpo=0.0, sdpo=1.0)

    @property
    def distillation(self) -> SelfDistillation:
        """How it learns."""
        return self.self_distillation


class ReplayedPairs(Contract):
    """Preference pairs of another source, such as replayed traces, learned from next to the rollouts."""

    beta: Annotated[float, Field(gt=0, le=100)] = 0.1
    batch_size: Annotated[int, Field(ge=1, le=256)] = 2
    """Pairs in one pass, next to each pass of answers."""
    max_length: Annotated[int, Field(ge=16, le=131072)] = 1024
    """The limit of prompt and response together; longer prompts lose their beginning."""


class ComposerParameters(GrpoParameters):
    """One trainer with three channels: GRPO, self-distillation, and DPO on given pairs.

    Their weights are this project's choice: those of published systems are not known.
    """

    channels: Channels = Channels()
    self_distillation: SelfDistillation = omit_default(SelfDistillation())
    replayed_pairs: ReplayedPairs = omit_default(ReplayedPairs())

    @property
    def weights(self) -> Channels:
        """The weight of each channel."""
        return self.channels

    @property
    def distillation(self) -> SelfDistillation:
        """How the channel of self-distillation learns, where it has a weight."""
        return self.self_distillation

    @model_validator(mode="after")
    def _channels_fit(self) -> Self:
        if not any((self.channels.grpo, self.channels.sdpo, self.channels.dpo)):
            raise ValueError("every channel has weight 0")
        return self
