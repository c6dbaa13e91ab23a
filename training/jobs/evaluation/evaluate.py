"""Answer every item: once, greedily, or several times at a temperature. Nothing is judged here.

All conditions go through this loop; only what the model reads of an item differs (``prompting``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specs.stages.base.sampling import digest_ids
from specs.stages.evaluation.parameters import EvaluateParameters
from specs.stages.evaluation.rows import EvaluationRow
from specs.system.digests import digest_bytes
from training.engines.engine_factory import make_engine
from training.engines.sampling_noise import streams_of
from training.engines.token_sampling import TokenSampling
from training.jobs.job import Job, StageResult, batches_of
from training.jobs.witness.prompted_answers import PromptedAnswer, Source, UnusableRow, answer, left_rows
from training.rules.prompt_encoding import form_of, item_ids
from training.rules.prompt_text import seed_of
from training.rules.tasks import load_items

_PART = "evaluate"
"""The part of a stage's work that the streams of its draws are named by."""


def _sampling(parameters: EvaluateParameters) -> TokenSampling:
    return TokenSampling(parameters.max_new_tokens, parameters.temperature, parameters.top_p, stops=parameters.stops)


def evaluate(job: Job[EvaluateParameters]) -> StageResult:
    """Write ``rows``, all answers to each item; raises EncodingFault if the ids of a prompt are not its text."""
    parameters = job.parameters
    form = form_of(job.order.model_kind)
    items = load_items(job.inputs["items"])
    size, samples_per_item, folder = parameters.batch_size, parameters.samples_per_item, job.inputs["model"]
    engine = make_engine(parameters.engine, folder, size, scratch=job.folder, share=False)
    prompts = [item_ids(engine.tokenizer, item, parameters, form) for item in items]
    sampling = _sampling(parameters)

    def answer_batch(number: int, batch: Sequence[int]) -> list[EvaluationRow]:
        outputs = engine.complete(
            [prompts[index] for index in batch],
            sampling,
            samples=samples_per_item,
            seed=seed_of(parameters.seed, _PART, number),
            streams=streams_of(parameters.seed, _PART, (items[index].id for index in batch), samples_per_item),
            on_batch=job.advance,
        )
        return [
            EvaluationRow(
                item=items[index].id,
                sample=sample,
                prompt_digest=digest_ids(prompts[index]),
                prompt_tokens=len(prompts[index]),
                truncated=output.truncated,
                **output.as_row(),
            )
            for index, samples in zip(batch, outputs, strict=True)
            for sample, output in enumerate(samples)
        ]

    shard = job.shard("answers", EvaluationRow)
    # Sorted by length, as decoding would sort them: prompts of one batch are padded little.
    order = sorted(range(len(items)), key=lambda index: (len(prompts[index]), index))
    job.fill(shard, batches_of(order, max(1, size // samples_per_item) * engine.at_once), answer_batch, "items")
    answers = shard.rows()
    rows = [
        row
        for _, at in sorted(zip(order, range(len(order)), strict=True))
        for row in answers[samples_per_item * at :][:samples_per_item]
    ]
    job.write_rows("rows", rows)
    template = engine.tokenizer.chat_template or ""
    return StageResult(
        engine.device,
        engine.dtype,
        sum(row.output_tokens for row in rows),
        parameters.model_dump(mode="json")
        | {"engine": engine.name, "decoding": "sampled" if sampling.temperature else "greedy", "form": form},
        engine.describe_for_manifest()
        | {"chat_template": digest_bytes(template.encode()), "first_prompt_ids": prompts[0][:64]},
    )


def build_witness_prompts(job: Job[EvaluateParameters], tokenizer: Any, places: Sequence[int]) -> list[PromptedAnswer]:
    """Return what the model was asked for these rows, the items' prompts; raises NotAsked and EncodingFault."""
    parameters, form = job.parameters, form_of(job.order.model_kind)
    items = load_items(job.inputs["items"])
    sampling, source = _sampling(parameters), Source(parameters, _PART)
    review_requests: list[PromptedAnswer] = []
    for place, row in left_rows(job, EvaluationRow, places):
        at, sample = divmod(place, parameters.samples_per_item)
        if at >= len(items) or (row.item, row.sample) != (items[at].id, sample):
            raise UnusableRow(f"row {place} is not an answer to item {at}, sample {sample}")
        prompt = item_ids(tokenizer, items[at], parameters, form)
        review_requests.append(
            answer(
                place, prompt, sampling, ids=row.answer_ids, text=row.output, finish=row.finish,
                stated=row.first_prompt(),
                stream=source.of_item(row.item, sample),
            )
        )  # fmt: skip
    return review_requests
