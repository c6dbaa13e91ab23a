"""What the replicas of each kind share, and what becomes of their rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

from specs.stages.artifacts import Example
from specs.stages.finetuning.parameters import DpoParameters
from specs.stages.finetuning.rows import TrainingRow
from training.engines import checkpoint
from training.jobs.finetuning import dpo, sft
from training.jobs.finetuning.built import Built
from training.jobs.finetuning.trained_model import Prepared
from training.jobs.job import Job
from training.rules.finetuning.replica_rounds import BY_TOKENS, Merging, shard_of

One = TypeVar("One")


class Course(ABC, Generic[One]):
    """The training of one kind, as the process that starts its replicas sees it."""

    build: ClassVar[Callable[..., Built]]
    """Returns the trainer of a job, or of one replica's share."""
    merging: ClassVar[Merging] = BY_TOKENS
    row: ClassVar[Callable[[dict[str, Any]], TrainingRow]]
    what: ClassVar[str]
    each: int = 1
    """Rows of a batch that one of the shared rows makes ..."""
    sequences: int = 1
    """... and its sequences."""

    def __init__(self, job: Job[Any]) -> None:
        self.job = job
        self.shared: list[One] = self.granted()
        """What is shared out, in the order in which it is."""

    @abstractmethod
    def granted(self) -> list[One]:
        """Return everything that is trained on."""

    @abstractmethod
    def facts(self, used: list[One]) -> dict[str, Any]:
        """Return what the manifest says of what was trained on."""

    def end(self, model: Any, prepared: Prepared) -> None:
        """Write what the trained model makes beside its weights."""

    def used(self) -> list[One]:
        """Return what is in the shard of some replica; the few rows left over are in none."""
        replicas = self.job.parameters.distributed.replicas
        return [one for number in range(replicas) for one in shard_of(self.shared, number, replicas)]


class Examples(Course[Example]):
    """``sft``."""

    build, row, what = staticmethod(sft.build), staticmethod(sft.step_of), "examples"

    def granted(self) -> list[Example]:
        """Return the granted examples."""
        return sft.examples_of(self.job)

    def facts(self, used: list[Example]) -> dict[str, Any]:
        """Return their number, by kind too."""
        return sft.facts_of(used)


class Pairs(Course[int]):
    """``dpo``: lines of pairs; those that were kept out are scored before the replicas begin and in the end."""

    build, row, what = staticmethod(dpo.build), staticmethod(dpo.step_of), "pairs"
    merging = Merging("sequences", ("rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"))
    sequences = 2

    def __init__(self, job: Job[DpoParameters]) -> None:
        self._data = dpo.data_of(job)
        super().__init__(job)
        self.each = 2 if job.parameters.loss == "kto" else 1
        self._before = dpo.scored(self._data.prepared.model, self._data.prepared, self._data.kept, job.parameters)
        # The replicas need the memory.
        self._data.prepared.model = None
        checkpoint.free()

    def granted(self) -> list[int]:
        """Return the lines that are not kept out."""
        return list(self._data.split.train)

    def facts(self, used: list[int]) -> dict[str, Any]:
        """Return how many pairs were trained on, and how many were not."""
        return {"pairs": len(used), "validation_pairs": len(self._data.split.validation)}

    def end(self, model: Any, prepared: Prepared) -> None:
        """Write the scores of the pairs that were kept out."""
        dpo.write_scores(self.job, self._data, self._before, model)


COURSES: dict[str, type[Course[Any]]] = {"sft": Examples, "dpo": Pairs}
