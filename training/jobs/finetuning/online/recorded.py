"""Rollouts as evidence: every answer with what it was worth, in the order in which it was sampled, and used again.

Answers are drawn from a generator of their own, so that a witness that takes them from the job's rows, and samples
nothing, reads the same batches in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os.path import commonprefix
from pathlib import Path
from typing import Any, NamedTuple

from specs.stages.base.artifacts import Item
from specs.stages.finetuning.online_parameters import GrpoParameters, SelfDistillation
from specs.stages.finetuning.online_rows import Rollout
from training.engines.batched import output_of
from training.engines.stop_strings import StopWatcher
from training.jobs.finetuning.online.hidden_states import TokenSequence
from training.jobs.finetuning.trainer_hooks import digest_of
from training.jobs.row_files import lines_of, read_rows, write_durably
from training.rules.finetuning.rewards import advantages, hints, rewards_of, sum_weighted_rewards
from training.rules.seeded_order import file_order
from training.rules.tasks import judge_answers

FILE = "rollouts.jsonl"
"""The file of a saved step with the rollouts up to it."""


class OtherRollouts(Exception):
    """Committed rollouts are not answers to the prompts that the granted data gives."""


class RolloutSource(NamedTuple):
    """What answers are judged by, and what they answer."""

    items: Sequence[Item]
    """In the order of the training rows."""
    task: str
    tokenizer: Any
    ends: Sequence[int]
    distilled: SelfDistillation | None
    """How the channel of self-distillation learns; None without it."""


class Rollouts:
    """The answers of a training, and what they are worth."""

    def __init__(
        self, arguments: GrpoParameters, source: RolloutSource, committed: Sequence[Rollout] | None = None
    ) -> None:
        self.rows: list[Rollout] = []
        self.hints: list[str | None] = []
        self.spans: list[tuple[int, int] | None] = []
        """For the answers that were judged last: the learned tokens, unless all are learned."""
        self.heard: Callable[[int, Sequence[Rollout]], None] = lambda _, __: None
        """Gets each step's committed rollouts before they are trained on."""
        self._given, self._source = arguments, source
        self._committed = committed
        self._watch = StopWatcher(source.tokenizer, (), keep_special=False)
        self._newest: list[Rollout] = []

    @property
    def replays(self) -> bool:
        """Return whether answers come from a job's rows."""
        return self._committed is not None

    def of_step(self, step: int) -> list[list[int]]:
        """Return the token ids of a step's committed answers, with their end tokens; raises OtherRollouts for none."""
        rollouts = [rollout for rollout in self._committed or () if rollout.step == step]
        if not rollouts:
            raise OtherRollouts(f"no rollouts for step {step}")
        self.heard(step, rollouts)
        return [[*rollout.answer_ids, *([] if rollout.end_id is None else [rollout.end_id])] for rollout in rollouts]

    def judge(self, step: int, places: Sequence[int], completions: Sequence[Sequence[int]]) -> None:
        """Judge the answers of a step: to which training rows, and their token ids. Groups are neighbours.

        Raises PluginFault as the task's verifier, OtherRollouts where committed rows answer other prompts.
        """
        grpo_parameters, source = self._given, self._source
        items = [source.items[place] for place in places]
        outputs = [self._output(ids) for ids in completions]
        judgements = list(
            judge_answers(source.task, [(item, output.text) for item, output in zip(items, outputs, strict=True)])
        )
        weights: dict[str, float] = {**grpo_parameters.rewards}
        valued = [
            rewards_of(
                list(weights),
                verified=judgement.passed,
                finish=output.finish,
                tokens=len(output.ids),
                most=grpo_parameters.max_new_tokens,
            )
            for judgement, output in zip(judgements, outputs, strict=True)
        ]
        self._newest, self.hints, self.spans = [], [], []
        for at in range(0, len(items), grpo_parameters.generations):
            group = slice(at, at + grpo_parameters.generations)
            rewards = [sum_weighted_rewards(value, weights) for value in valued[group]]
            worth = advantages(rewards, scale=grpo_parameters.scale_rewards)
            texts, passed = (
                [value.text for value in outputs[group]],
                [judgement.passed for judgement in judgements[group]],
            )
            hinted = (
                hints(texts, judgements[group], source.distilled)
                if source.distilled
                else [None] * grpo_parameters.generations
            )
            spans = [hint.span if hint else None for hint in hinted]
            tokens = [
                None if span is None else self._tokens_of(span, output.ids, output.text)
                for span, output in zip(spans, outputs[group], strict=True)
            ]
            self.hints += [hint.text if hint else None for hint in hinted]
            self.spans += tokens
            self._newest += [
                Rollout(
                    step=step,
                    item=items[at + n].id,
                    group=items[at + n].group,
                    kind=items[at + n].kind,
                    sample=n,
                    text=outputs[at + n].text,
                    finish=outputs[at + n].finish,
                    answer_ids=tuple(outputs[at + n].ids),
                    end_id=completions[at + n][-1] if outputs[at + n].finish == "eos" else None,
                    verified=passed[n],
                    rewards=valued[at + n],
                    reward=rewards[n],
                    advantage=worth[n],
                    hint=hint.text if (hint := hinted[n]) else None,
                    span=spans[n],
                    span_tokens=tokens[n],
                )
                for n in range(grpo_parameters.generations)
            ]
        if self._committed is not None:
            theirs = [rollout for rollout in self._committed if rollout.step == step]
            if [rollout.item for rollout in theirs] != [rollout.item for rollout in self._newest]:
                raise OtherRollouts(f"the rollouts of step {step} answer other prompts than the granted data gives")
            if [rollout.span_tokens for rollout in theirs] != [rollout.span_tokens for rollout in self._newest]:
                raise OtherRollouts(f"the rollouts of step {step} name other tokens than those of their spans")
        self.rows += self._newest

    def values(self, reward: str) -> list[float]:
        """Return one reward of the answers that were judged last."""
        return [rollout.rewards[reward] for rollout in self._newest]

    def _tokens_of(self, span: tuple[int, int], ids: Sequence[int], text: str) -> tuple[int, int]:
        """Return the places of the tokens that hold some characters of the text of ids: the first, and after the last.

        A token that ends within a character belongs to it.
        """
        reached = [len(commonprefix([self._watch.text_of(ids[:count]), text])) for count in range(len(ids) + 1)]
        before = max(value for value in reached if value <= span[0])
        return reached.index(before), next(count for count, value in enumerate(reached) if value >= span[1])

    def _output(self, ids: Sequence[int]) -> Any:
        ended = bool(ids) and ids[-1] in self._source.ends
        return output_of(ids[:-1] if ended else ids, "eos" if ended else "length", self._watch)


def make_recording_trainer(trainer: type[Any], rollouts: Rollouts, seed: int) -> type[Any]:
    """Return a subclass of a guarded trainer with channels that takes and keeps its answers as ``rollouts`` says."""

    class RecordingTrainer(trainer):
        """Counts what its steps read."""

        def _get_train_sampler(self, *arguments: Any, **named: Any) -> Any:
            return _in_passes(super()._get_train_sampler(*arguments, **named))

        def _prepare_inputs(self, generation_batch: Any) -> Any:
            if not self._step and self.state.global_step:
                # TRL saves no count of its passes, and would begin another round of answers.
                self._step = self.state.global_step * self.args.gradient_accumulation_steps
            return super()._prepare_inputs(generation_batch)

        def _generate_single_turn(self, *arguments: Any, **named: Any) -> Any:
            import torch

            step = self.state.global_step + 1
            if rollouts.replays:
                return rollouts.of_step(step), None
            with torch.random.fork_rng():
                torch.manual_seed(int(file_order(f"rollouts {step}", seed)[:15], 16))
                return super()._generate_single_turn(*arguments, **named)

        def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
            rollouts.judge(self.state.global_step + 1, [value["place"] for value in inputs], completion_ids_list)
            self.hints, self.spans = rollouts.hints, rollouts.spans
            return super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)

        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            self.pair_ids = {}
            loss = super()._compute_loss(model, inputs)
            self.read_batches.append(digest_of({**inputs, **self.pair_ids}))
            self.read_tokens += int(inputs["completion_mask"].sum())
            self.read_rows += len(inputs["completion_mask"])
            return loss

        def read_pairs(self, sides: Sequence[TokenSequence]) -> None:
            import torch

            self.pair_ids = {
                f"pair_{place}_{side.begin}": torch.tensor(list(side.ids)) for place, side in enumerate(sides)
            }

        def take_step_counts(self) -> dict[str, Any]:
            counts = {"tokens": self.read_tokens, "sequences": self.read_rows, "batches": self.read_batches}
            self.read_tokens, self.read_rows, self.read_batches = 0, 0, []
            # While a replica skips steps its channels have nothing to learn from.
            return counts if self.idle else counts | self.channel_counts()

        def _save_checkpoint(self, *arguments: Any, **named: Any) -> None:
            super()._save_checkpoint(*arguments, **named)
            keep_rows(Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}", rollouts.rows)

    RecordingTrainer.read_tokens, RecordingTrainer.read_rows, RecordingTrainer.read_batches = 0, 0, []
    RecordingTrainer.idle = False
    return RecordingTrainer


def _in_passes(sampler: Any) -> Any:
    """Give TRL's sampler the order of a pass by its number: a resumed training would begin with that of the first.

    The order is the same as in an uninterrupted training.
    """

    def set_epoch(number: int) -> None:
        import torch

        sampler.generator.manual_seed(sampler.seed)
        for _ in range(number):
            torch.randperm(sampler.num_samples, generator=sampler.generator)

    sampler.set_epoch = set_epoch
    return sampler


def keep_rows(folder: Path, rows: Sequence[Rollout]) -> None:
    """Write rollouts next to a saved step."""
    write_durably(folder / FILE, lines_of(rows))


def rollouts_until(folder: Path | None) -> list[Rollout]:
    """Return the rollouts up to a saved step; none without one."""
    return [] if folder is None else read_rows(folder / FILE, Rollout)


def reward_functions(rollouts: Rollouts, names: Sequence[str]) -> list[Callable[..., list[float]]]:
    """Return TRL's reward functions: they say what was found when the answers were judged."""

    def function(name: str) -> Callable[..., list[float]]:
        def reward(**_: Any) -> list[float]:
            return rollouts.values(name)

        reward.__name__ = name
        return reward

    return [function(name) for name in names]
