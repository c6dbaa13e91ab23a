"""Read every text once, window by window, and record its negative log-likelihood."""

from __future__ import annotations

from collections.abc import Sequence

from specs.stages.artifacts import Item
from specs.stages.evaluation.parameters import PerplexityParameters
from specs.stages.evaluation.rows import PerplexityRow
from training.engines.checkpoint import device_of, load
from training.jobs.evaluation.likelihood import nats_of, prefix_of, windows_of
from training.jobs.job import Done, Job, batches_of
from training.rules.tasks import load_items


def perplexity(job: Job[PerplexityParameters]) -> Done:
    """Write ``rows``: one for each text, its item's prompt; raises ValueError if it is empty or the window too long."""
    parameters = job.parameters
    model, tokenizer = load(job.inputs["model"])
    prefix = prefix_of(tokenizer)

    def read(_: int, some: Sequence[Item]) -> list[PerplexityRow]:
        (item,) = some
        tokens = list(tokenizer(item.prompt, add_special_tokens=False)["input_ids"])
        windows = list(windows_of(tokens, prefix, parameters.window, parameters.stride))
        if not windows:
            raise ValueError(f"text '{item.id}' is empty")
        nats = sum(nats_of(model, windows, batch_size=parameters.batch_size))
        size = len(item.prompt.encode())
        return [PerplexityRow(item=item.id, nats=nats, tokens=len(tokens), bytes=size, windows=len(windows))]

    shard = job.shard("texts", PerplexityRow)
    job.fill(shard, batches_of(load_items(job.inputs["items"]), 1), read, "texts")
    rows = shard.rows()
    job.write_rows("rows", rows)
    device, dtype = device_of(model)
    effective = parameters.model_dump(mode="json")
    return Done(device, dtype, sum(row.tokens for row in rows), effective, {"prefix_token": prefix})
