"""Train some steps of a job again on the answers that it committed to, and read these answers with the weights then.

Nothing is sampled: whether the weights of a step could have written its answers is read off them, as of any sampled
text, and whether the steps follow from the answers is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from specs.jobs.job_records import LEFT
from specs.stages.base.witness import ROWS, WitnessRow
from specs.stages.finetuning.online_rows import KeptAnswer, Rollout
from specs.stages.finetuning.rows import ReplayedStep
from specs.system.digests import Contract
from training.engines import checkpoint
from training.engines.token_sampling import TokenSampling
from training.jobs.finetuning.adapter_merge import release
from training.jobs.finetuning.online.build import OnlineInputs, build, prepare_online_inputs
from training.jobs.finetuning.online.job import greedy
from training.jobs.finetuning.online.recorded import OtherRollouts
from training.jobs.finetuning.replay import steps_of
from training.jobs.finetuning.saved_weights import apart_from_end, files_apart, weight_facts
from training.jobs.finetuning.weight_sketch import collect_trained_weights
from training.jobs.job import Job, StageResult
from training.jobs.row_files import read_rows
from training.jobs.witness.prompted_answers import PromptedAnswer, UnusableRow, answer, left_rows
from training.jobs.witness.reading import read
from training.rules.seeded_order import file_order

READ = 16
"""Prompts kept out of training whose answers are read."""


def replay(job: Job[Any]) -> StageResult:
    """Write a row for each replayed step, and one for each answer that was read; return facts of the saved weights.

    Raises NotAsked where a snapshot or rollouts are missing, answer other prompts, or weights cannot be read.
    """
    challenge = job.order.challenge
    assert challenge is not None
    committed = read_rows(job.inputs[LEFT + "rollouts"], Rollout)
    steps, answers = list[ReplayedStep](), list[WitnessRow]()
    facts: dict[str, Any] = {}
    device, dtype = "", ""
    remaining: OnlineInputs | None = None
    for segment in challenge.segments:
        arguments = prepare_online_inputs(job)
        if remaining is None:
            remaining = arguments
            answers += read_validation_answers(job, arguments, arguments.prepared.model, "before", challenge.ended)
        built = build(job, arguments, committed)
        trainer = built.trainer
        device, dtype = checkpoint.device_of(trainer.model)
        if "files" not in facts:
            facts["files"] = files_apart(job, trainer.model, arguments.prepared.tokenizer)
        built.rollouts.heard = partial(hear, job, arguments, trainer, committed, answers)
        try:
            steps += steps_of(job, trainer, segment)
        except OtherRollouts as error:
            raise UnusableRow(str(error)) from error
        job.progress(len(steps), len(challenge.rows), "steps")
        if segment.until == challenge.of:
            facts["end_apart"] = apart_from_end(job, collect_trained_weights(trainer.model))
        release(trainer, arguments.prepared)
    facts |= weight_facts(job)
    if remaining is not None and remaining.validation:
        model, _ = checkpoint.load(job.inputs[LEFT + "checkpoint"])
        answers += read_validation_answers(job, remaining, model, "after", challenge.ended)
    rows: list[Contract] = [*steps, *answers]
    job.write_rows(ROWS, rows)
    return StageResult(device, dtype, sum(step.tokens for step in steps), {}, facts)


def hear(
    job: Job[Any],
    arguments: OnlineInputs,
    trainer: Any,
    committed: Sequence[Rollout],
    answers: list[WitnessRow],
    step: int,
    rows: Sequence[Rollout],
) -> None:
    """Read the committed answers of a step with the weights that it begins with."""
    with checkpoint.evaluating(trainer.model):
        answers.extend(
            read(
                trainer.model,
                arguments.prepared.tokenizer,
                _build_witness_prompts(job, arguments, committed, step, rows),
            )
        )


def _build_witness_prompts(
    job: Job[Any], arguments: OnlineInputs, committed: Sequence[Rollout], step: int, rows: Sequence[Rollout]
) -> list[PromptedAnswer]:
    """Return what the model was asked for the committed answers of a step."""
    # Each replica has its own answers to a step, next to each other.
    begins = (step, rows[0].item, rows[0].sample)
    first = next(
        place for place, rollout in enumerate(committed) if (rollout.step, rollout.item, rollout.sample) == begins
    )
    items = {item.id: item for item in arguments.training}
    if unknown := [rollout.item for rollout in rows if rollout.item not in items]:
        raise UnusableRow(f"a rollout answers '{unknown[0]}', which is not a prompt to train on")
    sampling = TokenSampling(job.parameters.max_new_tokens, temperature=job.parameters.temperature)
    return [
        answer(
            first + place,
            arguments.prompt_ids(items[rollout.item]),
            sampling,
            ids=rollout.answer_ids,
            text=rollout.text,
            finish=rollout.finish,
        )
        for place, rollout in enumerate(rows)
    ]


def read_validation_answers(
    job: Job[Any], arguments: OnlineInputs, model: Any, part: str, seed: str
) -> list[WitnessRow]:
    """Return how a model reads some of the answers to prompts that were kept out."""
    places = sorted(range(len(arguments.validation)), key=lambda place: file_order(f"{place} {seed}", 0))[:READ]
    items = {item.id: item for item in arguments.validation}
    requests: list[PromptedAnswer] = []
    for place, row in left_rows(job, KeptAnswer, sorted(places), "kept"):
        if row.item not in items:
            raise UnusableRow(f"'{row.item}' is not a prompt that was kept out")
        ids, text, finish = (row.before_ids, row.before, row.before_finish)
        if part == "after":
            ids, text, finish = (row.after_ids, row.after, row.after_finish)
        prompt = arguments.prompt_ids(items[row.item])
        requests.append(answer(place, prompt, greedy(job.parameters), ids=ids, text=text, finish=finish, part=part))
    with checkpoint.evaluating(model):
        return list(read(model, arguments.prepared.tokenizer, requests))
