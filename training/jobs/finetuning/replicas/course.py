"""The part of a training by replicas that is its kind's own: what they share, train with and leave."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from specs.stages.finetuning.rows import TrainingRow
from training.jobs.finetuning.replicas.replica_files import RoundRecord
from training.jobs.finetuning.trained_model import PreparedModel
from training.jobs.finetuning.training_texts import Style
from training.jobs.job import Job
from training.rules.finetuning.replica_rounds import BY_TOKENS, Merging, Share, shard_of
from training.rules.finetuning.schedules import steps_of


class BatchRecord(Protocol):
    """What a trainer's batches held."""

    def facts(self) -> dict[str, Any]:
        """Return it, to be kept with a round."""
        ...


class ReplicaTrainer(NamedTuple):
    """The trainer of one replica before its first step."""

    trainer: Any
    prepared: PreparedModel
    style: Style
    batches: BatchRecord
    end: Callable[[], dict[str, Any]]
    """Returns the facts of a replica that has trained."""


class ReplicaReplay(ABC):
    """How a witness trains replicas of a kind again."""

    def __init__(self, job: Job[Any]) -> None:
        self.job = job
        self.answers: list[Any] = []
        """Rows next to those of the steps."""

    @abstractmethod
    def build(self, mine: Job[Any], share: Share) -> tuple[Any, PreparedModel]:
        """Return the trainer of a replica as it was before its first step."""

    @abstractmethod
    def close(self) -> dict[str, Any]:
        """Return what the saved weights say."""


class ReplicaCourse(ABC):
    """The training of one kind, as the process that starts its replicas sees it."""

    merging: ClassVar[Merging] = BY_TOKENS
    what: ClassVar[str]
    again: ClassVar[type[ReplicaReplay]]

    def __init__(self, job: Job[Any]) -> None:
        self.job = job
        self.replicas: int = job.parameters.distributed.replicas
        self.shared: Sequence[Any] = self.list_training_data()
        """What is shared out, in the order in which it is."""

    @staticmethod
    @abstractmethod
    def build(job: Job[Any], share: Share) -> ReplicaTrainer:
        """Return the trainer of one replica's share."""

    @abstractmethod
    def list_training_data(self) -> Sequence[Any]:
        """Return everything that is trained on."""

    @abstractmethod
    def row(self, line: dict[str, Any]) -> TrainingRow:
        """Return the row of a merged step."""

    @abstractmethod
    def facts(
        self, rounds: list[RoundRecord], lines: list[dict[str, Any]], ends: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """Return what a training in one process states; ``ends`` are the facts of the replicas that came to the end."""

    @abstractmethod
    def sequences_due(self) -> int:
        """Return how many sequences all replicas are to train on."""

    def rows_of_epoch(self) -> int:
        """Return the rows of which the batches of a pass are made."""
        return len(self.used())

    @abstractmethod
    def end(self, rounds: list[RoundRecord], model: Any) -> None:
        """Write the remaining outputs and the trained model."""

    def steps(self) -> int:
        """Return the optimizer steps of each replica."""
        return steps_of(self.rows_of_epoch(), self.job.parameters.model_dump())

    def used(self) -> list[Any]:
        """Return what is in the shard of some replica; the few rows left over are in none."""
        return [value for number in range(self.replicas) for value in shard_of(self.shared, number, self.replicas)]


def select_counted_rounds(rounds: list[RoundRecord]) -> list[RoundRecord]:
    """Return the rounds whose steps are in the model, by synchronisation and replica."""
    return sorted(
        (value for value in rounds if value.row.counts), key=lambda value: (value.row.sync, value.row.replica)
    )
