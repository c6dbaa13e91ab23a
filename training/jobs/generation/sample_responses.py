"""Have the model answer instructions; each row holds the answer before and after cleaning.

Each shard of instructions has its own seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from specs.stages.base.artifacts import Item
from specs.stages.base.sampling import Form
from specs.stages.generation.parameters import SampleResponsesParameters
from specs.stages.generation.rows import SampleResponsesRow
from training.engines.engine import CompletionEngine
from training.engines.engine_factory import make_engine
from training.engines.sampling_noise import streams_of
from training.engines.token_sampling import TokenSampling
from training.jobs.job import Job, StageResult, batches_of
from training.jobs.witness.prompted_answers import PromptedAnswer, Source, left_rows, of_items
from training.rules.cleaning import clean, marks_of
from training.rules.prompt_encoding import form_of, prompt_ids
from training.rules.prompt_text import answer_prompt, seed_of
from training.rules.sampling_quality import group_size, kept_of, why_broken_off
from training.rules.tasks import load_items


def respond(job: Job[SampleResponsesParameters]) -> StageResult:
    """Write ``rows`` (every answer) and ``examples`` (what is whole, clean and in scope, each once)."""
    parameters = job.parameters
    items = load_items(job.inputs["instructions"])[: parameters.max_instructions]
    engine = make_engine(parameters.engine, job.inputs["model"], parameters.batch_size, scratch=job.folder)
    form, sampling = form_of(job.order.model_kind), TokenSampling.of(parameters, parameters.stops)
    shard = job.shard("answers", SampleResponsesRow)
    size = group_size(parameters.quality, parameters.shard_size, parameters.samples_per_instruction)

    def answer_group(number: int, batch: Sequence[Item]) -> list[SampleResponsesRow]:
        return _answers(engine, parameters, form, sampling, number, batch, job.advance)

    groups = batches_of(items, size)
    why = job.fill(shard, groups, answer_group, "instructions", lambda _: why_broken_off(shard.rows(), parameters))
    rows = shard.rows()
    job.write_rows("rows", rows)
    job.write_rows("examples", kept_of(rows))
    facts = engine.describe_for_manifest(why) | {"model_kind": job.order.model_kind, "instructions": len(items)}
    effective = parameters.model_dump(mode="json") | sampling.read_back(parameters) | {"engine": engine.name}
    return StageResult(engine.device, engine.dtype, sum(row.tokens for row in rows), effective, facts)


def _answers(
    engine: CompletionEngine,
    responses_parameters: SampleResponsesParameters,
    form: Form,
    sampling: TokenSampling,
    number: int,
    items: Sequence[Item],
    on_batch: Callable[[int], None],
) -> list[SampleResponsesRow]:
    """Return the rows of a shard: every sample of every instruction; report how many instructions are done."""
    # The name of the random stream, not of the kind: another one would draw other answers.
    seed, samples_per_instruction = (
        seed_of(responses_parameters.seed, "respond", number),
        responses_parameters.samples_per_instruction,
    )
    encoded = [
        prompt_ids(engine.tokenizer, answer_prompt(item.prompt, responses_parameters.shots, form), form)
        for item in items
    ]
    outputs = engine.complete(
        [value.ids for value in encoded],
        sampling,
        samples=samples_per_instruction,
        seed=seed,
        streams=streams_of(responses_parameters.seed, "respond", (item.id for item in items), samples_per_instruction),
        on_batch=on_batch,
    )
    rows: list[SampleResponsesRow] = []
    for item, prompt, samples in zip(items, encoded, outputs, strict=True):
        for sample, output in enumerate(samples):
            cleaned = clean(output.text, responses_parameters.cleaning)
            rows.append(
                SampleResponsesRow(
                    item=item.id,
                    group=item.group,
                    kind=item.kind,
                    sample=sample,
                    shard=number,
                    seed=seed,
                    form=form,
                    instruction=item.prompt,
                    prompt=prompt.text,
                    prompt_tokens=len(prompt.ids),
                    **output.as_row("raw", "tokens"),
                    completion=cleaned.text,
                    completion_tokens=len(engine.tokenizer(cleaned.text, add_special_tokens=False)["input_ids"]),
                    cleaned_by=cleaned.by,
                    marks=marks_of(
                        cleaned.text, item.prompt, output.finish, responses_parameters.stops, responses_parameters.scope
                    ),
                )
            )
    return rows


def build_witness_prompts(
    job: Job[SampleResponsesParameters], tokenizer: Any, places: Sequence[int]
) -> list[PromptedAnswer]:
    """Return what the model was asked for these rows, the instructions; raises NotAsked and EncodingFault."""
    parameters, form = job.parameters, form_of(job.order.model_kind)

    def prompt(item: Item) -> Sequence[int]:
        return prompt_ids(tokenizer, answer_prompt(item.prompt, parameters.shots, form), form).ids

    items = load_items(job.inputs["instructions"])[: parameters.max_instructions]
    rows = left_rows(job, SampleResponsesRow, places)
    sampling = TokenSampling.of(parameters, parameters.stops)
    return of_items(rows, items, prompt, lambda row: row.raw, sampling, Source(parameters, "respond"))
