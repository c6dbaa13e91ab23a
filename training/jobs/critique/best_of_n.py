"""Sample k responses, find the best by an A/B judge in both orders, and write pairs (best, other), with hard negatives.

Sampling comes first and its model is let go before the judge is loaded. Groups of rows are written down as a whole; a
stage that was ended goes on after the last whole group.
"""

from __future__ import annotations

from collections.abc import Sequence

from specs.stages.answer_end import Form
from specs.stages.artifacts import Item
from specs.stages.critique.parameters import BestOfNParameters
from specs.stages.critique.rows import CandidateRow
from training.engines.engine import Engine, make_engine, stated
from training.engines.token_sampling import Sampling
from training.jobs.critique.pair_files import write_pairs
from training.jobs.critique.pair_judge import ask_judge, labelled_sample
from training.jobs.job import Done, Job, run_stage
from training.jobs.row_files import GroupedRows
from training.rules.critique.preference_pairs import all_pairs, pairs_to_compare
from training.rules.critique.subjects import spread
from training.rules.prompt_encoding import form_of, prompt_ids
from training.rules.prompt_text import answer_prompt, seed_of
from training.rules.sampling_quality import Tally, group_size, of_candidates
from training.rules.tasks import load_items

PROMPTS_A_GROUP = 64


def prefer(job: Job) -> Done:
    """Write ``rows`` (every response), ``comparisons`` and ``calibration`` (log-probabilities) and ``preferences``."""
    parameters = job.parameters
    assert isinstance(parameters, BestOfNParameters)
    sample = labelled_sample(job)
    form = form_of(job.order.model_kind)
    items = spread(load_items(job.inputs["prompts"]), parameters.max_prompts)
    rows, engine, why = _sampled(job, items, parameters, form)
    said = ask_judge(job, parameters.rubric, parameters, sample, pairs_to_compare(rows))
    job.write_rows("rows", rows)
    kept = all_pairs(said.comparisons, parameters)
    write_pairs(job, parameters, kept)
    effective = parameters.model_dump(mode="json") | {"engine": engine.name if engine else parameters.engine}
    facts = said.facts | {"prompts": len(items)}
    facts["dropped"] = kept.reasons()
    facts |= {"broken_off": why} if why else {}
    facts |= stated(engine) if engine else {}
    return Done(said.device, said.dtype, sum(row.tokens for row in rows), effective, facts)


def _sampled(
    job: Job, items: Sequence[Item], parameters: BestOfNParameters, form: Form
) -> tuple[list[CandidateRow], Engine | None, str]:
    """Return every sampled response, the engine, closed, and why sampling was broken off, if it was.

    There is no engine where all responses were written before this was ended.
    """
    engine = None
    kept = GroupedRows(job.folder / "shards" / "candidates.jsonl", CandidateRow)
    size = group_size(parameters.quality, PROMPTS_A_GROUP, parameters.samples)
    groups = [items[at : at + size] for at in range(0, len(items), size)]
    tally = Tally(parameters.quality)
    tally.add(of_candidates(kept.rows(), parameters))
    if len(kept.groups) < len(groups) and not tally.why():
        engine = make_engine(parameters.engine, job.inputs["model"], parameters.batch_size, scratch=job.folder)
        sampling = Sampling(
            parameters.max_new_tokens,
            parameters.temperature,
            parameters.top_p,
            stops=parameters.stops if form == "completion" else (),
        )
        for number, some in enumerate(groups):
            if number >= len(kept.groups):
                if tally.why():
                    break
                kept.add(_group(engine, number, some, parameters, form, sampling))
                tally.add(of_candidates(kept.groups[-1], parameters))
            job.progress(number + 1, len(groups), "groups of prompts")
        engine.close()
    return kept.rows(), engine, tally.why()


def _group(
    engine: Engine,
    number: int,
    items: Sequence[Item],
    parameters: BestOfNParameters,
    form: Form,
    sampling: Sampling,
) -> list[CandidateRow]:
    prompts = [answer_prompt(item.prompt, parameters.shots, form) for item in items]
    ids = [prompt_ids(engine.tokenizer, prompt, form).ids for prompt in prompts]
    # The name of the random stream, not of the kind: another one would draw other responses.
    seed = seed_of(parameters.seed, "prefer", number)
    outputs = engine.complete(ids, sampling, samples=parameters.samples, seed=seed)
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
        )
        for item, prompt, samples in zip(items, prompts, outputs, strict=True)
        for place, output in enumerate(samples)
    ]


if __name__ == "__main__":
    run_stage("best_of_n", prefer)
