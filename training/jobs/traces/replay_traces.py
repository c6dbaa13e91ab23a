"""The process of a ``replay_traces`` stage: transcripts, their states, answers to them, and pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specs.stages.base.artifacts import Item
from specs.stages.traces.parameters import ReplayTracesParameters
from specs.stages.traces.rows import TraceAnswer
from specs.system.errors import UserError
from training.engines.engine_factory import make_engine
from training.engines.sampling_noise import streams_of
from training.engines.token_sampling import TokenSampling
from training.jobs.job import Job, StageResult, batches_of, refuse
from training.jobs.witness.prompted_answers import PromptedAnswer, Source, left_rows, of_items
from training.rules.prompt_encoding import form_of, prompt_ids
from training.rules.prompt_text import seed_of
from training.rules.tasks import load_items
from training.rules.traces.local_replay import States, pairs_of, states_in

GROUP = 64
"""States that are answered together; an interrupted stage resumes after the last whole group."""


def replay_traces(job: Job[ReplayTracesParameters]) -> StageResult:
    """Write ``rows`` (every answer to every state) and ``pairs``."""
    parameters, states = job.parameters, _states(job)
    engine = make_engine(parameters.engine, job.inputs["model"], parameters.batch_size, scratch=job.folder)
    sampling, form = TokenSampling.of(parameters, parameters.stops), form_of(job.order.model_kind)
    shard = job.shard("answers", TraceAnswer)

    def answer_group(number: int, batch: Sequence[Item]) -> list[TraceAnswer]:
        encoded = [prompt_ids(engine.tokenizer, item.prompt, form) for item in batch]
        outputs = engine.complete(
            [value.ids for value in encoded],
            sampling,
            samples=parameters.answers,
            seed=seed_of(parameters.seed, "traces", number),
            streams=streams_of(parameters.seed, "traces", (item.id for item in batch), parameters.answers),
            on_batch=job.advance,
        )
        return [
            TraceAnswer(
                item=item.id,
                group=item.group,
                kind=item.kind,
                sample=sample,
                prompt=item.prompt,
                prompt_tokens=len(prompt.ids),
                **output.as_row("text", "tokens"),
            )
            for item, prompt, samples in zip(batch, encoded, outputs, strict=True)
            for sample, output in enumerate(samples)
        ]

    job.fill(shard, batches_of(states.items(), GROUP), answer_group, "states")
    rows = shard.rows()
    made = pairs_of(states, rows, parameters)
    job.write_rows("rows", rows)
    job.write_rows("pairs", made.pairs)
    account = states.account
    facts = engine.describe_for_manifest("") | {
        "records": account.records,
        "records_used": account.used,
        "records_skipped": account.skipped,
        "states": len(states.shown_states),
        "pairs": len(made.pairs),
        "agreement": made.agreement.model_dump(mode="json"),
    }
    effective = parameters.model_dump(mode="json") | sampling.read_back(parameters) | {"engine": engine.name}
    return StageResult(engine.device, engine.dtype, sum(row.tokens for row in rows), effective, facts)


def build_witness_prompts(
    job: Job[ReplayTracesParameters], tokenizer: Any, places: Sequence[int]
) -> list[PromptedAnswer]:
    """Return what the model was asked for these rows; raises NotAsked and EncodingFault."""
    form = form_of(job.order.model_kind)

    def prompt(item: Item) -> Sequence[int]:
        return prompt_ids(tokenizer, item.prompt, form).ids

    rows, parameters = left_rows(job, TraceAnswer, places), job.parameters
    sampling, source = TokenSampling.of(parameters, parameters.stops), Source(parameters, "traces")
    return of_items(rows, _states(job).items(), prompt, lambda row: row.text, sampling, source)


def _states(job: Job[ReplayTracesParameters]) -> States:
    try:
        return states_in(load_items(job.inputs["transcripts"]), job.parameters)
    except (UserError, ValueError) as error:
        refuse(f"the transcripts give no states: {error}")
