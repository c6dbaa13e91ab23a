"""Sample k responses, find the best with an A/B judge in both orders, and write pairs (best, other) and hard negatives.

All responses are sampled, and the sampling model is freed, before the judge is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specs.job_records import LEFT
from specs.stages.answer_end import Form
from specs.stages.artifacts import Item
from specs.stages.critique.parameters import BestOfNParameters
from specs.stages.critique.rows import CandidateRow
from training.engines.engine import Engine
from training.engines.engine_factory import make_engine
from training.engines.token_sampling import Sampling
from training.jobs.critique.best_of_n_verified import write_pairs
from training.jobs.critique.pair_judge import ask_judge, judge_scored, labelled_sample
from training.jobs.job import Done, Job, batches_of
from training.jobs.row_files import read_rows
from training.jobs.witness.asked import Asked, left_rows, of_items
from training.jobs.witness.scoring import Scoring
from training.rules.critique.preference_pairs import all_pairs, pairs_to_compare
from training.rules.prompt_encoding import form_of, prompt_ids
from training.rules.prompt_text import answer_prompt, seed_of
from training.rules.sampling_quality import Tally, group_size, of_candidates
from training.rules.tasks import load_items, spread

PROMPTS_A_GROUP = 64


def prefer(job: Job[BestOfNParameters]) -> Done:
    """Write ``rows`` (every response), ``comparisons`` and ``calibration`` (log-probabilities) and ``preferences``."""
    given = job.parameters
    sample = labelled_sample(job)
    form = form_of(job.order.model_kind)
    items = spread(load_items(job.inputs["prompts"]), given.max_prompts)
    groups = batches_of(items, group_size(given.quality, PROMPTS_A_GROUP, given.samples))
    engine = make_engine(given.engine, job.inputs["model"], given.batch_size, scratch=job.folder)
    shard = job.shard("candidates", CandidateRow)
    tally = Tally(given.quality)
    why = job.fill(
        shard,
        groups,
        lambda number, some: _group(engine, number, some, given, form),
        "prompts",
        lambda rows: tally.look(of_candidates(rows, given)),
    )
    engine.close()
    rows = shard.rows()
    said = ask_judge(job, given.rubric, given, sample, pairs_to_compare(rows))
    job.write_rows("rows", rows)
    kept = all_pairs(said.comparisons, given)
    write_pairs(job, given, kept)
    facts = said.facts | {"prompts": len(items), "dropped": kept.reasons()} | engine.stated(why)
    effective = given.model_dump(mode="json") | {"engine": engine.name}
    return Done(said.device, said.dtype, sum(row.tokens for row in rows), effective, facts)


def _sampling(given: BestOfNParameters, form: Form) -> Sampling:
    stops = given.stops if form == "completion" else ()
    return Sampling(given.max_new_tokens, given.temperature, given.top_p, stops=stops)


def asked(job: Job[BestOfNParameters], tokenizer: Any, places: Sequence[int]) -> list[Asked]:
    """Return what the model was asked for these rows, the items' prompts; raises NotAsked and EncodingFault."""
    given, form = job.parameters, form_of(job.order.model_kind)

    def prompt(item: Item) -> Sequence[int]:
        return prompt_ids(tokenizer, answer_prompt(item.prompt, given.shots, form), form).ids

    items = spread(load_items(job.inputs["prompts"]), given.max_prompts)
    rows = left_rows(job, CandidateRow, places)
    return of_items(rows, items, prompt, lambda row: row.response, _sampling(given, form))


def scored(job: Job[BestOfNParameters], output: str, places: Sequence[int]) -> list[Scoring]:
    """Return what the judge scored for these rows: the pairs of the sampled responses, or the labelled ones."""
    pairs = pairs_to_compare(read_rows(job.inputs[f"{LEFT}rows"], CandidateRow))
    return judge_scored(job, job.parameters.rubric, job.parameters, pairs, output, places)


def _group(
    engine: Engine, number: int, items: Sequence[Item], given: BestOfNParameters, form: Form
) -> list[CandidateRow]:
    prompts = [answer_prompt(item.prompt, given.shots, form) for item in items]
    ids = [prompt_ids(engine.tokenizer, prompt, form).ids for prompt in prompts]
    sampling = _sampling(given, form)
    # The name of the random stream, not of the kind: another name would draw other responses.
    seed = seed_of(given.seed, "prefer", number)
    outputs = engine.complete(ids, sampling, samples=given.samples, seed=seed)
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
