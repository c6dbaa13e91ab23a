"""Answer every item once, greedily, and write the answers down. Judging them is not this stage's business.

All conditions go through this one loop; what the model reads of an item is the only difference (``prompting``). Answers
are kept batch by batch: a stage that was ended goes on after the last whole batch and gives the same rows.
"""

from __future__ import annotations

from specs.digests import digest_bytes
from specs.stages.evaluation.parameters import EvaluateParameters
from specs.stages.evaluation.rows import EvaluationRow
from training.engines.engine import make_engine, stated
from training.engines.token_sampling import Sampling
from training.jobs.job import Done, Job, run_stage
from training.jobs.row_files import GroupedRows
from training.rules.item_prompts import item_ids
from training.rules.prompt_encoding import form_of
from training.rules.tasks import load_items


def evaluate(job: Job) -> Done:
    """Write ``rows``: one answer per item.

    Raises:
        EncodingFault: a prompt is not encoded as the text it is, or a model declared instruct has no chat template.
    """
    parameters = job.parameters
    assert isinstance(parameters, EvaluateParameters)
    form = form_of(job.order.declared())
    items = load_items(job.inputs["items"])
    size, folder = parameters.batch_size, job.inputs["model"]
    engine = make_engine(parameters.engine, folder, size, scratch=job.folder, share=False)
    prompts = [item_ids(engine.tokenizer, item.prompt, parameters, form) for item in items]
    sampling = Sampling(parameters.max_new_tokens, stops=parameters.stops)
    kept = GroupedRows(job.folder / "shards" / "answers.jsonl", EvaluationRow)
    # Sorted by length, as decoding would sort them: prompts of one batch are padded little.
    order = sorted(range(len(items)), key=lambda index: (len(prompts[index]), index))
    size *= engine.at_once
    batches = [order[at : at + size] for at in range(0, len(order), size)]
    for batch in batches[len(kept.groups) :]:
        outputs = engine.complete([prompts[index] for index in batch], sampling, seed=parameters.seed)
        kept.add(
            [
                EvaluationRow(
                    item=items[index].id,
                    prompt_tokens=len(prompts[index]),
                    output=output.text,
                    output_tokens=len(output.ids),
                    truncated=output.truncated,
                    finish=output.finish,
                    stop=output.stop,
                )
                for index, (output,) in zip(batch, outputs, strict=True)
            ]
        )
        job.progress(len(kept.rows()), len(items), "items")
    by_place = dict(zip(order, kept.rows(), strict=True))
    rows = [by_place[index] for index in range(len(items))]
    job.write_rows("rows", rows)
    template = engine.tokenizer.chat_template or ""
    return Done(
        engine.device,
        engine.dtype,
        sum(row.output_tokens for row in rows),
        parameters.model_dump(mode="json") | {"engine": engine.name, "decoding": "greedy", "form": form},
        stated(engine) | {"chat_template": digest_bytes(template.encode()), "first_prompt_ids": prompts[0][:64]},
    )


if __name__ == "__main__":
    run_stage("evaluate", evaluate)
