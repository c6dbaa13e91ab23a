"""Train some steps of a job again on the answers that it committed to, and read these answers with the weights then.

Nothing is sampled: whether the weights of a step could have written its answers is read off them, as of any sampled
text, and whether the steps follow from the answers is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from specs.digests import Contract
from specs.job_records import LEFT
from specs.stages.finetuning.online_rows import KeptAnswer, Rollout
from specs.stages.finetuning.rows import ReplayedStep
from specs.stages.witness import ROWS, WitnessRow
from training.engines import checkpoint
from training.engines.token_sampling import Sampling
from training.jobs.finetuning.adapter_merge import release
from training.jobs.finetuning.online.build import Granted, build, granted
from training.jobs.finetuning.online.job import greedy
from training.jobs.finetuning.online.recorded import OtherRollouts
from training.jobs.finetuning.replay import steps_of
from training.jobs.finetuning.saved_weights import apart_from_end, files_apart, weight_facts
from training.jobs.finetuning.weight_sketch import trained
from training.jobs.job import Done, Job
from training.jobs.row_files import read_rows
from training.jobs.witness.asked import Asked, NotAsked, answer, left_rows
from training.jobs.witness.reading import read
from training.rules.seeded_order import file_order

READ = 16
"""Prompts kept out of training whose answers are read."""


def replay(job: Job[Any]) -> Done:
    """Write a row for each replayed step, and one for each answer that was read; return facts of the saved weights.

    Raises NotAsked where a snapshot or rollouts are missing, answer other prompts, or weights cannot be read.
    """
    challenge = job.order.challenge
    assert challenge is not None
    committed = read_rows(job.inputs[LEFT + "rollouts"], Rollout)
    steps, answers = list[ReplayedStep](), list[WitnessRow]()
    facts: dict[str, Any] = {}
    device, dtype = "", ""
    kept: Granted | None = None
    for segment in challenge.segments:
        given = granted(job)
        if kept is None:
            kept = given
            answers += read_kept(job, given, given.prepared.model, "before", challenge.ended)
        built = build(job, given, committed)
        trainer = built.trainer
        device, dtype = checkpoint.device_of(trainer.model)
        if "files" not in facts:
            facts["files"] = files_apart(job, trainer.model, given.prepared.tokenizer)
        built.rollouts.heard = partial(hear, job, given, trainer, committed, answers)
        try:
            steps += steps_of(job, trainer, segment)
        except OtherRollouts as error:
            raise NotAsked(str(error)) from error
        job.progress(len(steps), len(challenge.rows), "steps")
        if segment.until == challenge.of:
            facts["end_apart"] = apart_from_end(job, trained(trainer.model))
        release(trainer, given.prepared)
    facts |= weight_facts(job)
    if kept is not None and kept.kept:
        model, _ = checkpoint.load(job.inputs[LEFT + "checkpoint"])
        answers += read_kept(job, kept, model, "after", challenge.ended)
    rows: list[Contract] = [*steps, *answers]
    job.write_rows(ROWS, rows)
    return Done(device, dtype, sum(one.tokens for one in steps), {}, facts)


def hear(
    job: Job[Any],
    given: Granted,
    trainer: Any,
    committed: Sequence[Rollout],
    answers: list[WitnessRow],
    step: int,
    rows: Sequence[Rollout],
) -> None:
    """Read the committed answers of a step with the weights that it begins with."""
    with checkpoint.evaluating(trainer.model):
        answers.extend(read(trainer.model, given.prepared.tokenizer, _asked(job, given, committed, step, rows)))


def _asked(
    job: Job[Any], given: Granted, committed: Sequence[Rollout], step: int, rows: Sequence[Rollout]
) -> list[Asked]:
    """Return what the model was asked for the committed answers of a step."""
    # Of replicas each has answers of its own to a step, next to each other.
    begins = (step, rows[0].item, rows[0].sample)
    first = next(place for place, one in enumerate(committed) if (one.step, one.item, one.sample) == begins)
    items = {one.id: one for one in given.training}
    if unknown := [one.item for one in rows if one.item not in items]:
        raise NotAsked(f"a rollout answers '{unknown[0]}', which is no prompt to train on")
    sampling = Sampling(job.parameters.max_new_tokens, temperature=job.parameters.temperature)
    return [
        answer(
            first + place,
            given.prompt_ids(items[one.item]),
            sampling,
            ids=one.answer_ids,
            text=one.text,
            finish=one.finish,
        )
        for place, one in enumerate(rows)
    ]


def read_kept(job: Job[Any], given: Granted, model: Any, part: str, seed: str) -> list[WitnessRow]:
    """Return how a model reads some of the answers to prompts that were kept out."""
    places = sorted(range(len(given.kept)), key=lambda place: file_order(f"{place} {seed}", 0))[:READ]
    items = {one.id: one for one in given.kept}
    asked: list[Asked] = []
    for place, row in left_rows(job, KeptAnswer, sorted(places), "kept"):
        if row.item not in items:
            raise NotAsked(f"'{row.item}' is no prompt that was kept out")
        ids, text, finish = (row.before_ids, row.before, row.before_finish)
        if part == "after":
            ids, text, finish = (row.after_ids, row.after, row.after_finish)
        prompt = given.prompt_ids(items[row.item])
        asked.append(answer(place, prompt, greedy(job.parameters), ids=ids, text=text, finish=finish, part=part))
    with checkpoint.evaluating(model):
        return list(read(model, given.prepared.tokenizer, asked))
