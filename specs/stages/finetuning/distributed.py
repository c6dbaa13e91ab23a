"""Training by replicas that synchronise rarely, and what each of them leaves of every synchronisation."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from specs.system.digests import Contract, Count, Positive, Quantity, omit_default

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Outer(Contract):
    """The outer optimizer: SGD, with Nesterov's momentum unless that is 0."""

    lr: Annotated[float, Field(gt=0, le=2)] = 0.7
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9


class DistributedTraining(Contract):
    """DiLoCo (Douillard et al. 2023, arXiv:2311.08105): replicas train on shards and average what they changed.

    Each replica is a process with its own shard. After ``sync_every`` optimizer steps the mean of what the
    replicas changed is the gradient of one outer step, after which all of them have the same weights. ``batch_size``,
    ``learning_rate``, its schedule and ``max_grad_norm`` are those of each replica's own steps.
    """

    strategy: Literal["diloco"] = "diloco"
    replicas: Annotated[int, Field(ge=2, le=64)]
    sync_every: Annotated[int, Field(ge=1)]
    """Optimizer steps of each replica between synchronisations; the last round may have fewer."""
    outer: Outer = Outer()
    min_replicas: Annotated[int, Field(ge=2)] | None = omit_default()
    """How many must take part in a synchronisation: more than half of them, so that no two groups go separate ways.
    Left out, it is the least such number. With fewer alive, the others wait."""

    @property
    def quorum(self) -> int:
        """Return how many replicas must take part in a synchronisation."""
        return self.min_replicas or self.replicas // 2 + 1

    def rounds_of(self, steps: int) -> int:
        """Return how many synchronisations so many steps of each replica take."""
        return -(-steps // self.sync_every)

    def last_step(self, sync: int, steps: int) -> int:
        """Return after which of so many steps a synchronisation is made; they are counted from 1."""
        return min(sync * self.sync_every, steps)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        least = self.replicas // 2 + 1
        if not least <= self.quorum <= self.replicas:
            raise ValueError(
                f"min_replicas is {self.quorum}: of {self.replicas} replicas it must be {least} to {self.replicas}, or "
                "two halves could each train their own model"
            )
        return self


class ReplicaRound(Contract):
    """What one replica did between two synchronisations, and the second of them."""

    unique_by = ("sync", "replica")

    sync: Positive
    """Which synchronisation ended it, from 1."""
    replica: Count
    process: Positive
    """Which process of the replica it was; 2 is the first that was started again."""
    first_step: Positive
    last_step: Positive
    tokens: Count
    """That carried loss in its steps."""
    sequences: Count
    start: Sha256
    """The digest of all trained weights when the round began."""
    before: Sha256
    """Likewise before the synchronisation ..."""
    after: Sha256
    """... and after it."""
    quorum: Count
    """torchft's number of the set of processes that took part."""
    participants: Positive
    healed: bool
    """Whether it took over another replica's weights at this synchronisation; its own steps are lost then."""
    drift: Quantity
    """The norm of what its own steps changed."""
    bytes: Count
    """The bytes of the tensors that it passed to the all-reduce."""
    seconds: Quantity
    """That the synchronisation took, waiting for others included."""

    @property
    def counts(self) -> bool:
        """Return whether its steps are part of the model."""
        return not self.healed
