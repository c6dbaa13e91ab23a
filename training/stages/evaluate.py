"""Answer every item once, greedily, and write the answers down. Judging them is not this stage's business.

All conditions go through this one loop; what the model reads of an item is the only difference (``prompting``). Answers
are kept batch by batch: a stage that was ended goes on after the last whole batch and gives the same rows.
"""

from __future__ import annotations

from specs.evidence import EvaluationRow
from specs.stages import EvaluateParameters
from training.checkpoint import device_of, load
from training.decoding import complete
from training.entry import Done, Job, run_stage
from training.scoring.prompts import item_ids
from training.tasks import load_items
from training.text.prompting import form_of
from training.text.row_files import GroupedRows
from training.text.sampling import Sampling


def evaluate(job: Job) -> Done:
    """Write ``rows``: one answer per item.

    Raises:
        EncodingFault: a prompt is not encoded as the text it is, or a model declared instruct has no chat template.
    """
    parameters = job.parameters
    assert isinstance(parameters, EvaluateParameters)
    form = form_of(job.order.declared())
    items = load_items(job.inputs["items"])
    model, tokenizer = load(job.inputs["model"])
    prompts = [item_ids(tokenizer, item.prompt, parameters, form) for item in items]
    sampling = Sampling(parameters.max_new_tokens, stops=parameters.stops)
    kept = GroupedRows(job.folder / "shards" / "answers.jsonl", EvaluationRow)
    # Sorted by length, as decoding would sort them: prompts of one batch are padded little.
    order = sorted(range(len(items)), key=lambda index: (len(prompts[index]), index))
    batches = [order[at : at + parameters.batch_size] for at in range(0, len(order), parameters.batch_size)]
    for batch in batches[len(kept.groups) :]:
        outputs = complete(
            model,
            tokenizer,
            [prompts[index] for index in batch],
            sampling,
            batch_size=parameters.batch_size,
            seed=parameters.seed,
        )
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
    device, dtype = device_of(model)
    template = tokenizer.chat_template or ""
    return Done(
        device,
        dtype,
        sum(row.output_tokens for row in rows),
        parameters.model_dump(mode="json") | {"decoding": "greedy", "form": form},
        {"chat_template": digest_text(template), "first_prompt_ids": prompts[0][:64]},
    )


def digest_text(text: str) -> str:
    """Return the digest of a text's UTF-8 bytes."""
    from specs.digests import digest_bytes

    return digest_bytes(text.encode())


if __name__ == "__main__":
    run_stage("evaluate", evaluate)
