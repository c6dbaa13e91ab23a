"""Have the model write programs. Nothing is run here: the gate runs them, so that no job's word is taken for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specs.stages.base.artifacts import Item
from specs.stages.base.sampling import Form
from specs.stages.programs.parameters import CodeEvalParameters
from specs.stages.programs.rows import CodeRow
from training.engines.engine_factory import make_engine
from training.engines.sampling_noise import streams_of
from training.engines.token_sampling import TokenSampling
from training.jobs.job import Job, StageResult, batches_of
from training.jobs.witness.prompted_answers import PromptedAnswer, Source, left_rows, of_items
from training.rules.programs.answer_program import question
from training.rules.prompt_encoding import form_of, prompt_ids
from training.rules.prompt_text import seed_of
from training.rules.tasks import load_items


def write_programs(job: Job[CodeEvalParameters]) -> StageResult:
    """Write ``rows``: every answer to every problem; raises EncodingFault if the ids of a prompt are not its text."""
    parameters = job.parameters
    problems = load_items(job.inputs["items"])[: parameters.max_problems]
    form = form_of(job.order.model_kind)
    engine = make_engine(parameters.engine, job.inputs["model"], parameters.batch_size, scratch=job.folder)
    sampling = _sampling(parameters)
    shard = job.shard("answers", CodeRow)

    def answer_group(number: int, batch: Sequence[Item]) -> list[CodeRow]:
        prompts = [_prompt(engine.tokenizer, item, form) for item in batch]
        # The name of the random stream: each group has its own, whatever was done before it.
        seed = seed_of(parameters.seed, "programs", number)
        streams = streams_of(parameters.seed, "programs", (item.id for item in batch), parameters.samples)
        outputs = engine.complete(
            prompts, sampling, samples=parameters.samples, seed=seed, streams=streams, on_batch=job.advance
        )
        return [
            CodeRow(
                item=item.id,
                sample=sample,
                form=form,
                prompt_tokens=len(prompt),
                truncated=output.truncated,
                **output.as_row(),
            )
            for item, prompt, samples in zip(batch, prompts, outputs, strict=True)
            for sample, output in enumerate(samples)
        ]

    groups = batches_of(problems, max(1, parameters.batch_size // parameters.samples))
    job.fill(shard, groups, answer_group, "problems")
    rows = shard.rows()
    job.write_rows("rows", rows)
    effective = parameters.model_dump(mode="json") | sampling.read_back(parameters) | {"engine": engine.name}
    tokens = sum(row.output_tokens for row in rows)
    return StageResult(
        engine.device, engine.dtype, tokens, effective, engine.describe_for_manifest() | {"problems": len(problems)}
    )


def build_witness_prompts(job: Job[CodeEvalParameters], tokenizer: Any, places: Sequence[int]) -> list[PromptedAnswer]:
    """Return what the model was asked for these rows, the problems; raises NotAsked and EncodingFault."""
    parameters, form = job.parameters, form_of(job.order.model_kind)
    problems = load_items(job.inputs["items"])[: parameters.max_problems]
    rows = left_rows(job, CodeRow, places)

    def prompt(item: Item) -> Sequence[int]:
        return _prompt(tokenizer, item, form)

    source = Source(parameters, "programs")
    return of_items(rows, problems, prompt, lambda row: row.output, _sampling(parameters), source)


def _prompt(tokenizer: Any, item: Item, form: Form) -> Sequence[int]:
    return prompt_ids(tokenizer, question(item.prompt, form), form).ids


def _sampling(parameters: CodeEvalParameters) -> TokenSampling:
    return TokenSampling(parameters.max_new_tokens, parameters.temperature, parameters.top_p)
