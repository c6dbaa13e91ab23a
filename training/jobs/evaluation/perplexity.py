"""Read every text once, window by window, and write down how surprising it was."""

from __future__ import annotations

from specs.stages.evaluation.parameters import PerplexityParameters
from specs.stages.evaluation.rows import PerplexityRow
from training.engines.checkpoint import device_of, load
from training.jobs.evaluation.likelihood import nats_of, prefix_of, windows_of
from training.jobs.job import Done, Job, run_stage
from training.jobs.row_files import GroupedRows
from training.rules.tasks import load_items


def perplexity(job: Job) -> Done:
    """Write ``rows``: one for each text, which is the prompt of its item.

    Raises:
        ValueError: a text is empty, or the window is longer than the model's context.
    """
    parameters = job.parameters
    assert isinstance(parameters, PerplexityParameters)
    items = load_items(job.inputs["items"])
    model, tokenizer = load(job.inputs["model"])
    prefix = prefix_of(tokenizer)
    kept = GroupedRows(job.folder / "shards" / "texts.jsonl", PerplexityRow)
    for item in items[len(kept.groups) :]:
        tokens = list(tokenizer(item.prompt, add_special_tokens=False)["input_ids"])
        windows = list(windows_of(tokens, prefix, parameters.window, parameters.stride))
        if not windows:
            raise ValueError(f"text '{item.id}' is empty")
        kept.add(
            [
                PerplexityRow(
                    item=item.id,
                    nats=sum(nats_of(model, windows, batch_size=parameters.batch_size)),
                    tokens=len(tokens),
                    bytes=len(item.prompt.encode()),
                    windows=len(windows),
                )
            ]
        )
        job.progress(len(kept.groups), len(items), "texts")
    rows = kept.rows()
    job.write_rows("rows", rows)
    device, dtype = device_of(model)
    effective = parameters.model_dump(mode="json")
    return Done(device, dtype, sum(row.tokens for row in rows), effective, {"prefix_token": prefix})


if __name__ == "__main__":
    run_stage("perplexity", perplexity)
