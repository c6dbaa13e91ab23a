"""``sft`` and ``dpo`` by replicas: examples and pairs that are given."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from specs.stages.base.artifacts import Example
from specs.stages.finetuning.rows import TrainingRow
from training.engines import checkpoint
from training.jobs.finetuning import dpo, sft, trainer_args
from training.jobs.finetuning.replicas.course import ReplicaCourse, ReplicaReplay, ReplicaTrainer, select_counted_rounds
from training.jobs.finetuning.replicas.replica_files import RoundRecord
from training.jobs.finetuning.saved_weights import saved_facts
from training.jobs.finetuning.trained_model import PreparedModel
from training.jobs.finetuning.trainer_hooks import TrainerBuild
from training.jobs.job import Job
from training.rules.finetuning.replica_rounds import Merging, Share


class ExamplesAgain(ReplicaReplay):
    """Examples."""

    built: Callable[..., TrainerBuild] = staticmethod(sft.build)

    def build(self, mine: Job[Any], share: Share) -> tuple[Any, PreparedModel]:
        """Return the trainer of the same share."""
        made = self.built(mine, share)
        return made.trainer, made.prepared

    def close(self) -> dict[str, Any]:
        """Return what the saved weights say of the granted data."""
        challenge = self.job.order.challenge
        assert challenge is not None
        return saved_facts(self.job, challenge.ended)


class PairsAgain(ExamplesAgain):
    """Pairs."""

    built = staticmethod(dpo.build)


class _TextCourse(ReplicaCourse):
    """Training on texts that are given."""

    @abstractmethod
    def data_facts(self) -> dict[str, Any]:
        """Return what the manifest says of what was trained on."""

    def facts(
        self, rounds: list[RoundRecord], lines: list[dict[str, Any]], ends: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the facts of data, batches and masks over all replicas whose steps count."""
        steps = [line for value in select_counted_rounds(rounds) for line in value.steps]
        batches = [digest for line in lines for digest in line["batches"]]
        # Of each process the masks it saw last hold those before.
        last = {
            (value.row.replica, value.row.process): value.batches
            for value in sorted(rounds, key=lambda value: value.row.sync)
        }
        masks = list(last.values())
        summed = {name: sum(mask[name] for mask in masks) for name in ("rows", "violations")}
        results = self.data_facts() | {
            "trained_rows": self.rows_of_epoch(),
            "batches": len(batches),
            "distinct_batches": len(set(batches)),
            "masked_tokens": sum(line["masked"] for line in steps),
            "sequences": sum(line["sequences"] for line in steps),
            "loss_difference": max(
                (end["loss_difference"] for end in ends if end["loss_difference"] is not None), default=None
            ),
            "batches_computed_again": sum(end["batches_computed_again"] for end in ends),
            "mask": masks[0]
            | summed
            | {"merged": max(mask["merged"] for mask in masks), "wrong": [w for m in masks for w in m["wrong"]]},
            "cut": sum(end["cut"] for end in ends),
            "dropped": sum(end["dropped"] for end in ends),
        }
        if "reference_difference" in ends[0]:
            results |= {
                "reference_difference": max(end["reference_difference"] for end in ends),
                "reference_responses": sum(end["reference_responses"] for end in ends),
            }
        return results


def _make_replica_trainer(built: TrainerBuild, most: int) -> ReplicaTrainer:
    def end() -> dict[str, Any]:
        results = built.compute_final_facts() | trainer_args.seen_facts(built.trainer, built.proof)
        return results | trainer_args.lengths(built.sides, built.prepared.tokenizer, most)

    return ReplicaTrainer(built.trainer, built.prepared, built.style, built.proof, end)


class ExampleCourse(_TextCourse):
    """``sft``."""

    what, again = "examples", ExamplesAgain

    @staticmethod
    def build(job: Job[Any], share: Share) -> ReplicaTrainer:
        """Return the trainer of a share of the examples."""
        return _make_replica_trainer(sft.build(job, share), job.parameters.max_length)

    def list_training_data(self) -> list[Example]:
        """Return the granted examples."""
        return sft.examples_of(self.job)

    def row(self, line: dict[str, Any]) -> TrainingRow:
        """Return the row of a merged step."""
        return sft.step_of(line)

    def data_facts(self) -> dict[str, Any]:
        """Return how many examples were trained on, by kind too."""
        return sft.facts_of(self.used())

    def sequences_due(self) -> int:
        """Return one for each example and pass."""
        return len(self.used()) * self.job.parameters.epochs

    def end(self, rounds: list[RoundRecord], model: Any) -> None:
        """Write nothing: steps and weights are all."""


class PairCourse(_TextCourse):
    """``dpo``: those pairs that were kept out are scored before the replicas begin and in the end."""

    what, again = "pairs", PairsAgain
    merging = Merging("sequences", ("rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"))

    def __init__(self, job: Job[Any]) -> None:
        self._data = dpo.data_of(job)
        super().__init__(job)
        self._before = dpo.score_pairs(
            self._data.prepared.model, self._data.prepared, self._data.validation, job.parameters
        )
        # The replicas need the memory.
        self._data.prepared.model = None
        checkpoint.free()

    @staticmethod
    def build(job: Job[Any], share: Share) -> ReplicaTrainer:
        """Return the trainer of a share of the pairs."""
        return _make_replica_trainer(dpo.build(job, share), job.parameters.max_length)

    def list_training_data(self) -> list[int]:
        """Return the lines that are not kept out."""
        return list(self._data.split.train)

    def row(self, line: dict[str, Any]) -> TrainingRow:
        """Return the row of a merged step."""
        return dpo.step_of(line)

    def rows_of_epoch(self) -> int:
        """Return the rows of a pass: of ``kto`` each response is one."""
        return len(self.used()) * (2 if self.job.parameters.loss == "kto" else 1)

    def data_facts(self) -> dict[str, Any]:
        """Return how many pairs were trained on, and how many were not."""
        return {"pairs": len(self.used()), "validation_pairs": len(self._data.split.validation)}

    def sequences_due(self) -> int:
        """Return two for each pair and pass."""
        return 2 * len(self.used()) * self.job.parameters.epochs

    def end(self, rounds: list[RoundRecord], model: Any) -> None:
        """Write the scores of the pairs that were kept out."""
        dpo.write_scores(self.job, self._data, self._before, model)
