"""Answer every item once, greedily. Nothing is judged here.

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
from training.engines.token_sampling import TokenSampling
from training.jobs.job import Job, StageResult, batches_of
from training.jobs.witness.prompted_answers import PromptedAnswer, UnusableRow, answer, left_rows
from training.rules.prompt_encoding import form_of, item_ids
from training.rules.tasks import load_items


def evaluate(job: Job[EvaluateParameters]) -> StageResult:
    """Write ``rows``: one answer per item; raises EncodingFault if the ids of a prompt do not stand for its text."""
    parameters = job.parameters
    form = form_of(job.order.model_kind)
    items = load_items(job.inputs["items"])
    size, folder = parameters.batch_size, job.inputs["model"]
    engine = make_engine(parameters.engine, folder, size, scratch=job.folder, share=False)
    prompts = [item_ids(engine.tokenizer, item, parameters, form) for item in items]
    sampling = TokenSampling(parameters.max_new_tokens, stops=parameters.stops)

    def answer_batch(_: int, batch: Sequence[int]) -> list[EvaluationRow]:
        outputs = engine.complete([prompts[index] for index in batch], sampling, seed=parameters.seed)
        return [
            EvaluationRow(
                item=items[index].id,
                prompt_digest=digest_ids(prompts[index]),
                prompt_tokens=len(prompts[index]),
                truncated=output.truncated,
                **output.as_row(),
            )
            for index, (output,) in zip(batch, outputs, strict=True)
        ]

    shard = job.shard("answers", EvaluationRow)
    # Sorted by length, as decoding would sort them: prompts of one batch are padded little.
    order = sorted(range(len(items)), key=lambda index: (len(prompts[index]), index))
    job.fill(shard, batches_of(order, size * engine.at_once), answer_batch, "items")
    rows = [row for _, row in sorted(zip(order, shard.rows(), strict=True), key=lambda pair: pair[0])]
    job.write_rows("rows", rows)
    template = engine.tokenizer.chat_template or ""
    return StageResult(
        engine.device,
        engine.dtype,
        sum(row.output_tokens for row in rows),
        parameters.model_dump(mode="json") | {"engine": engine.name, "decoding": "greedy", "form": form},
        engine.describe_for_manifest()
        | {"chat_template": digest_bytes(template.encode()), "first_prompt_ids": prompts[0][:64]},
    )


def build_witness_prompts(job: Job[EvaluateParameters], tokenizer: Any, places: Sequence[int]) -> list[PromptedAnswer]:
    """Return what the model was asked for these rows, the items' prompts; raises NotAsked and EncodingFault."""
    parameters, form = job.parameters, form_of(job.order.model_kind)
    items = load_items(job.inputs["items"])
    sampling = TokenSampling(parameters.max_new_tokens, stops=parameters.stops)
    review_requests: list[PromptedAnswer] = []
    for place, row in left_rows(job, EvaluationRow, places):
        if place >= len(items) or row.item != items[place].id:
            raise UnusableRow(f"row {place} is not an answer to item {place}")
        prompt = item_ids(tokenizer, items[place], parameters, form)
        review_requests.append(
            answer(
                place, prompt, sampling, ids=row.answer_ids, text=row.output, finish=row.finish,
                stated=row.first_prompt(),
            )
        )  # fmt: skip
    return review_requests
