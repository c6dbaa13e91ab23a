"""Sample k responses, find the best with an A/B judge in both orders, and write pairs (best, other) and hard negatives.

All responses are sampled, and the sampling model is freed, before the judge is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specs.jobs.job_records import LEFT
from specs.stages.base.artifacts import Item
from specs.stages.base.sampling import Form
from specs.stages.critique.parameters import BestOfNParameters
from specs.stages.critique.rows import CandidateRow
from training.engines.engine import CompletionEngine
from training.engines.engine_factory import make_engine
from training.engines.sampling_noise import streams_of
from training.engines.token_sampling import TokenSampling
from training.jobs.critique.best_of_n_verified import write_pairs
from training.jobs.critique.pair_judge import ask_judge, judge_scored, labelled_sample
from training.jobs.job import Job, StageResult, batches_of
from training.jobs.row_files import read_rows
from training.jobs.witness.prompted_answers import PromptedAnswer, Source, left_rows, of_items
from training.jobs.witness.scoring import Scoring
from training.rules.critique.preference_pairs import all_pairs, pairs_to_compare
from training.rules.prompt_encoding import form_of, prompt_ids
from training.rules.prompt_text import answer_prompt, seed_of
from training.rules.sampling_quality import Tally, group_size, of_candidates
from training.rules.tasks import load_items, spread

PROMPTS_A_GROUP = 64


def prefer(job: Job[BestOfNParameters]) -> StageResult:
    """Write ``rows`` (every response), ``comparisons`` and ``calibration`` (log-probabilities) and ``preferences``."""
    parameters = job.parameters
    sample = labelled_sample(job)
    form = form_of(job.order.model_kind)
    items = spread(load_items(job.inputs["prompts"]), parameters.max_prompts)
    groups = batches_of(items, group_size(parameters.quality, PROMPTS_A_GROUP, parameters.samples))
    engine = make_engine(parameters.engine, job.inputs["model"], parameters.batch_size, scratch=job.folder)
    shard = job.shard("candidates", CandidateRow)
    tally = Tally(parameters.quality)
    why = job.fill(
        shard,
        groups,
        lambda number, batch: _group(engine, number, batch, job, form),
        "prompts",
        lambda rows: tally.look(of_candidates(rows, parameters)),
    )
    engine.close()
    rows = shard.rows()
    statement = ask_judge(job, parameters.rubric, parameters, sample, pairs_to_compare(rows))
    job.write_rows("rows", rows)
    pairs = all_pairs(statement.comparisons, parameters)
    write_pairs(job, parameters, pairs)
    facts = statement.facts | {"prompts": len(items), "dropped": pairs.reasons()} | engine.describe_for_manifest(why)
    effective = parameters.model_dump(mode="json") | {"engine": engine.name}
    return StageResult(statement.device, statement.dtype, sum(row.tokens for row in rows), effective, facts)


def _sampling(parameters: BestOfNParameters, form: Form) -> TokenSampling:
    stops = parameters.stops if form == "completion" else ()
    return TokenSampling(parameters.max_new_tokens, parameters.temperature, parameters.top_p, stops=stops)


def build_witness_prompts(job: Job[BestOfNParameters], tokenizer: Any, places: Sequence[int]) -> list[PromptedAnswer]:
    """Return what the model was asked for these rows, the items' prompts; raises NotAsked and EncodingFault."""
    parameters, form = job.parameters, form_of(job.order.model_kind)

    def prompt(item: Item) -> Sequence[int]:
        return prompt_ids(tokenizer, answer_prompt(item.prompt, parameters.shots, form), form).ids

    items = spread(load_items(job.inputs["prompts"]), parameters.max_prompts)
    rows = left_rows(job, CandidateRow, places)
    source = Source(parameters, "prefer")
    return of_items(rows, items, prompt, lambda row: row.response, _sampling(parameters, form), source)


def build_scorings(job: Job[BestOfNParameters], output: str, places: Sequence[int]) -> list[Scoring]:
    """Return what the judge scored for these rows: the pairs of the sampled responses, or the labelled ones."""
    pairs = pairs_to_compare(read_rows(job.inputs[f"{LEFT}rows"], CandidateRow))
    return judge_scored(job, job.parameters.rubric, job.parameters, pairs, output, places)


def _group(
    engine: CompletionEngine, number: int, items: Sequence[Item], job: Job[BestOfNParameters], form: Form
) -> list[CandidateRow]:
    parameters = job.parameters
    prompts = [answer_prompt(item.prompt, parameters.shots, form) for item in items]
    ids = [prompt_ids(engine.tokenizer, prompt, form).ids for prompt in prompts]
    sampling = _sampling(parameters, form)
    # The name of the random stream, not of the kind: another name would draw other responses.
    seed = seed_of(parameters.seed, "prefer", number)
    streams = streams_of(parameters.seed, "prefer", (item.id for item in items), parameters.samples)
    outputs = engine.complete(
        ids, sampling, samples=parameters.samples, seed=seed, streams=streams, on_batch=job.advance
    )
    return [
        CandidateRow(
            item=item.id,
            group=item.group,
            kind=item.kind,
            sample=place,
            instruction=item.prompt,
            prompt=prompt,
            response=output.text.strip(),
            tokens=len(output.ids),
            finish=output.finish,
            answer_ids=output.ids,
        )
        for item, prompt, samples in zip(items, prompts, outputs, strict=True)
        for place, output in enumerate(samples)
    ]
