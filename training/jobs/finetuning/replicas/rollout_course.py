"""``grpo`` and ``composer`` by replicas: each answers its share of the prompts with the weights that it has.

A synchronisation never falls between two updates on the same answers: the spec says so.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from specs.jobs.job_records import LEFT
from specs.stages.base.artifacts import Item
from specs.stages.finetuning.online_rows import Rollout
from specs.stages.finetuning.rows import TrainingRow
from training.engines import checkpoint
from training.jobs.finetuning.online import job as online
from training.jobs.finetuning.online import replay
from training.jobs.finetuning.online.build import OnlineInputs, build, prepare_online_inputs
from training.jobs.finetuning.online.recorded import Rollouts
from training.jobs.finetuning.replicas.course import ReplicaCourse, ReplicaReplay, ReplicaTrainer, select_counted_rounds
from training.jobs.finetuning.replicas.replica_files import RoundRecord
from training.jobs.finetuning.saved_weights import weight_facts
from training.jobs.finetuning.trained_model import PreparedModel
from training.jobs.job import Job
from training.jobs.row_files import read_rows
from training.rules.finetuning.replica_rounds import Merging, Share


class RoundAnswers:
    """The answers of one round."""

    def __init__(self, rollouts: Rollouts) -> None:
        self._rollouts = rollouts

    def facts(self) -> dict[str, Any]:
        """Return the answers since the last round."""
        dicts = [rollout.model_dump(mode="json") for rollout in self._rollouts.rows]
        self._rollouts.rows.clear()
        return {"rollouts": dicts}


def _share_of(job: Job[Any], share: Share) -> OnlineInputs:
    arguments = prepare_online_inputs(job)
    return arguments._replace(training=share.of(arguments.training))


class RolloutsAgain(ReplicaReplay):
    """Trains on the answers that each replica committed to, and reads them."""

    def __init__(self, job: Job[Any]) -> None:
        super().__init__(job)
        self._committed = read_rows(job.inputs[LEFT + "rollouts"], Rollout)
        self._kept: OnlineInputs | None = None
        challenge = job.order.challenge
        assert challenge is not None
        self._seed = challenge.ended

    def build(self, mine: Job[Any], share: Share) -> tuple[Any, PreparedModel]:
        """Return the trainer of a share, with the answers to its prompts."""
        arguments = _share_of(mine, share)
        if self._kept is None:
            self._kept = arguments
            self.answers += replay.read_validation_answers(
                self.job, arguments, arguments.prepared.model, "before", self._seed
            )
        own = {item.id for item in arguments.training}
        built = build(mine, arguments, [rollout for rollout in self._committed if rollout.item in own])
        built.rollouts.heard = partial(replay.hear, self.job, arguments, built.trainer, self._committed, self.answers)
        return built.trainer, arguments.prepared

    def close(self) -> dict[str, Any]:
        """Return what the saved weights say, and read their answers to prompts that were kept out."""
        if self._kept is not None and self._kept.validation:
            model, _ = checkpoint.load(self.job.inputs[LEFT + "checkpoint"])
            self.answers += replay.read_validation_answers(self.job, self._kept, model, "after", self._seed)
        return weight_facts(self.job)


class PromptCourse(ReplicaCourse):
    """``grpo`` and ``composer``: prompts that were kept out are answered before the replicas begin and in the end."""

    what, again = "prompts", RolloutsAgain
    merging = Merging(means=("kl", "entropy", "clip_ratio/region_mean"))

    def __init__(self, job: Job[Any]) -> None:
        self._given = prepare_online_inputs(job)
        super().__init__(job)
        self._before = online.answers(self._given, self._given.prepared.model, job.parameters)
        # The replicas need the memory.
        self._given.prepared.model = None
        checkpoint.free()

    @staticmethod
    def build(job: Job[Any], share: Share) -> ReplicaTrainer:
        """Return the trainer of a share of the prompts; all of it, since a trainer takes whole batches."""
        arguments = _share_of(job, share._replace(most=None))
        built = build(job, arguments)
        end = partial(online.seen_facts, built.trainer)
        return ReplicaTrainer(built.trainer, arguments.prepared, arguments.style, RoundAnswers(built.rollouts), end)

    def list_training_data(self) -> list[Item]:
        """Return the prompts that are not kept out."""
        return self._given.training

    def row(self, line: dict[str, Any]) -> TrainingRow:
        """Return the row of a merged step."""
        return online.step_of(line)

    def facts(
        self, rounds: list[RoundRecord], lines: list[dict[str, Any]], ends: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the facts of data and answers over all replicas whose steps count."""
        steps = [line for value in select_counted_rounds(rounds) for line in value.steps]
        used = self._given._replace(training=self.used())
        return online.facts_of(used) | {"sequences": sum(line["sequences"] for line in steps)}

    def sequences_due(self) -> int:
        """Return the answers of every step, each as often as it is learned from."""
        parameters = self.job.parameters
        return self.replicas * self.steps() * parameters.batch_size * parameters.gradient_accumulation

    def end(self, rounds: list[RoundRecord], model: Any) -> None:
        """Write the answers that are in the model, and those to prompts that were kept out."""
        rows = [
            (rollout, replica.row.replica)
            for replica in select_counted_rounds(rounds)
            for rollout in replica.batches["rollouts"]
        ]
        ordered = sorted(rows, key=lambda pair: (pair[0]["step"], pair[1]))
        self.job.write_rows("rollouts", [Rollout.model_validate(value) for value, _ in ordered])
        online.write_validation_answers(self.job, self._given, self._before, model)
