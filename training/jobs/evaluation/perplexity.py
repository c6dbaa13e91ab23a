"""Read every text once, window by window, and record its negative log-likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specs.stages.base.artifacts import Item
from specs.stages.evaluation.parameters import PerplexityParameters
from specs.stages.evaluation.rows import PerplexityRow
from training.engines.checkpoint import device_of, load_for_inference, tokenizer_in
from training.jobs.evaluation.likelihood import digest_windows, nats_of, prefix_of, windows_of
from training.jobs.job import Job, StageResult, batches_of
from training.jobs.witness.prompted_answers import left_rows
from training.jobs.witness.scoring import ScoredSpan, Scoring, StatedLogprob, differing
from training.rules.tasks import load_items


def perplexity(job: Job[PerplexityParameters]) -> StageResult:
    """Write ``rows``: one for each text, its item's prompt; raises ValueError if it is empty or the window too long."""
    parameters = job.parameters
    model, tokenizer = load_for_inference(job.inputs["model"])
    prefix = prefix_of(tokenizer)

    def read(_: int, batch: Sequence[Item]) -> list[PerplexityRow]:
        (item,) = batch
        tokens = list(tokenizer(item.prompt, add_special_tokens=False)["input_ids"])
        windows = list(windows_of(tokens, prefix, parameters.window, parameters.stride))
        if not windows:
            raise ValueError(f"text '{item.id}' is empty")
        nats = sum(nats_of(model, windows, batch_size=parameters.batch_size))
        size = len(item.prompt.encode())
        digest, count = digest_windows(windows), len(windows)
        row = PerplexityRow(
            item=item.id, prompt_digest=digest, nats=nats, tokens=len(tokens), bytes=size, windows=count
        )
        return [row]

    shard = job.shard("texts", PerplexityRow)
    job.fill(shard, batches_of(load_items(job.inputs["items"]), 1), read, "texts")
    rows = shard.rows()
    job.write_rows("rows", rows)
    device, dtype = device_of(model)
    effective = parameters.model_dump(mode="json")
    return StageResult(device, dtype, sum(row.tokens for row in rows), effective, {"prefix_token": prefix})


def build_scorings(job: Job[PerplexityParameters], output: str, places: Sequence[int]) -> list[Scoring]:
    """Return what was scored for these rows: the items' texts, window by window."""
    items, tokenizer = load_items(job.inputs["items"]), tokenizer_in(job.inputs["model"])
    prefix = prefix_of(tokenizer)
    scorings: list[Scoring] = []
    for place, row in left_rows(job, PerplexityRow, places, output):
        if place >= len(items):
            scorings.append(Scoring(place, {}, ("item",)))
            continue
        text = items[place].prompt
        tokens = list(tokenizer(text, add_special_tokens=False)["input_ids"])
        windows = tuple(windows_of(tokens, prefix, job.parameters.window, job.parameters.stride))
        pending: dict[str, Any] = {"item": items[place].id, "tokens": len(tokens), "bytes": len(text.encode())}
        wrong = differing(row, pending | {"windows": len(windows), "prompt_digest": digest_windows(windows)})
        values = {"text": StatedLogprob(-row.nats, tuple(ScoredSpan(*window) for window in windows))}
        scorings.append(Scoring(place, values, wrong))
    return scorings
