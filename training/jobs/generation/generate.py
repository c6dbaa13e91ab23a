"""Sample completions from the model itself and keep what the verifier accepts.

A worked example may precede the prompt while sampling. Kept examples carry the bare prompt, so that training on them
moves the form from the context into the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specs.stages.base.artifacts import Example, Item
from specs.stages.base.sampling import Form
from specs.stages.generation.parameters import GenerateParameters
from specs.stages.generation.rows import GenerationRow
from training.engines.batched import Completion
from training.engines.engine import CompletionEngine
from training.engines.engine_factory import make_engine
from training.engines.sampling_noise import streams_of
from training.engines.token_sampling import TokenSampling
from training.jobs.job import Job, StageResult, batches_of
from training.jobs.witness.prompted_answers import PromptedAnswer, Source, left_rows, of_items
from training.rules.prompt_encoding import form_of, sample_ids
from training.rules.prompt_text import seed_of
from training.rules.sampling_quality import Tally, example_of, group_size, of_samples
from training.rules.tasks import choose, judge_answers, load_items, worked_example


def generate(job: Job[GenerateParameters]) -> StageResult:
    """Write ``rows`` (every sample) and ``accepted`` (verified, without repeats); raises EncodingFault."""
    parameters, task = job.parameters, job.order.task
    form = form_of(job.order.model_kind)
    items = choose(load_items(job.inputs["prompts"]), parameters.max_prompts)
    size, folder = parameters.batch_size, job.inputs["model"]
    engine = make_engine(parameters.engine, folder, size, scratch=job.folder, share=False)
    prompts = [_prompt(engine.tokenizer, item, parameters, task, form) for item in items]
    rows, why = _sample_items(job, engine, items, prompts)
    job.write_rows("rows", rows)
    job.write_rows("accepted", accept(task, items, rows))
    effective = parameters.model_dump(mode="json") | {"engine": engine.name, "prompts": len(items), "form": form}
    tokens = sum(row.completion_tokens for row in rows)
    return StageResult(engine.device, engine.dtype, tokens, effective, engine.describe_for_manifest(why))


def _prompt(tokenizer: Any, item: Item, generate_parameters: GenerateParameters, task: str, form: Form) -> list[int]:
    pair = worked_example(task, item) if generate_parameters.worked_example else None
    return sample_ids(tokenizer, item.prompt, pair, generate_parameters, form)


def _sampling(parameters: GenerateParameters) -> TokenSampling:
    return TokenSampling(parameters.max_new_tokens, parameters.temperature, parameters.top_p, stops=parameters.stops)


def build_witness_prompts(job: Job[GenerateParameters], tokenizer: Any, places: Sequence[int]) -> list[PromptedAnswer]:
    """Return what the model was asked for these rows, the items' prompts; raises NotAsked and EncodingFault."""
    parameters, form = job.parameters, form_of(job.order.model_kind)

    def prompt(item: Item) -> list[int]:
        return _prompt(tokenizer, item, parameters, job.order.task, form)

    rows, items = (
        left_rows(job, GenerationRow, places),
        choose(load_items(job.inputs["prompts"]), parameters.max_prompts),
    )
    return of_items(
        rows, items, prompt, lambda row: row.completion, _sampling(parameters), Source(parameters, "generate")
    )


def _sample_items(
    job: Job[GenerateParameters], engine: CompletionEngine, items: list[Item], prompts: list[list[int]]
) -> tuple[list[GenerationRow], str]:
    """Return every sample of every item, in their order, and why sampling stopped early, or nothing."""
    parameters, samples_per_prompt = job.parameters, job.parameters.samples_per_prompt
    sampling = _sampling(parameters)
    shard = job.shard("samples", GenerationRow)

    def sample_batch(number: int, batch: Sequence[int]) -> list[GenerationRow]:
        seed = seed_of(parameters.seed, "generate", number)
        outputs = engine.complete(
            [prompts[index] for index in batch],
            sampling,
            samples=samples_per_prompt,
            seed=seed,
            streams=streams_of(parameters.seed, "generate", (items[index].id for index in batch), samples_per_prompt),
            on_batch=job.advance,
        )
        return [
            _row(items[index], sample, output)
            for index, samples in zip(batch, outputs, strict=True)
            for sample, output in enumerate(samples)
        ]

    # Sorted by length, as decoding would sort them: prompts of one batch are padded little.
    order = sorted(range(len(items)), key=lambda index: (len(prompts[index]), index))
    size = group_size(
        parameters.quality, max(1, parameters.batch_size // samples_per_prompt) * engine.at_once, samples_per_prompt
    )
    tally = Tally(parameters.quality)
    why = job.fill(
        shard,
        batches_of(order, size),
        sample_batch,
        "prompts",
        lambda rows: tally.look(of_samples(rows, parameters.stops)),
    )
    rows = shard.rows()
    by_place = {index: rows[samples_per_prompt * at : samples_per_prompt * (at + 1)] for at, index in enumerate(order)}
    return [row for index in range(len(items)) for row in by_place[index]], why


def _row(item: Item, sample: int, output: Completion) -> GenerationRow:
    return GenerationRow(
        item=item.id,
        group=item.group,
        kind=item.kind,
        sample=sample,
        prompt=item.prompt,
        truncated=output.truncated,
        **output.as_row("completion", "completion_tokens"),
    )


def accept(task: str, items: list[Item], rows: list[GenerationRow]) -> list[Example]:
    """Return what may be trained on: verified and whole, each (prompt, completion) once."""
    by_id = {item.id: item for item in items}
    whole = [row for row in rows if not row.truncated]
    judgements = judge_answers(task, [(by_id[row.item], row.completion) for row in whole])
    examples: dict[tuple[str, str], Example] = {}
    for row, judgement in zip(whole, judgements, strict=True):
        if judgement.passed:
            example = example_of(row, row.prompt, row.completion.strip())
            examples.setdefault((example.prompt, example.completion), example)
    return list(examples.values())
