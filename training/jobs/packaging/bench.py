"""Time an engine and a plain ``generate`` by turns, in one process, on the same prompts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from specs.stages.packaging.parameters import BenchParameters
from specs.stages.packaging.rows import BenchRow
from training.engines.checkpoint import device_of, load
from training.engines.engine_factory import make_engine
from training.engines.token_sampling import TokenSampling
from training.jobs.job import Job, StageResult
from training.jobs.packaging.probe_answers import encode_probe_prompts
from training.rules.prompt_encoding import form_of
from training.rules.tasks import load_items


def bench(job: Job[BenchParameters]) -> StageResult:
    """Write ``rows``: tokens and seconds of each round; raises SystemExit where nothing is written in a round."""
    parameters = job.parameters
    form = form_of(job.order.model_kind)
    probes = load_items(job.inputs["items"])[: parameters.probe_items]
    engine = make_engine(parameters.engine, job.inputs["model"], parameters.batch_size, scratch=job.folder)
    prompts = [
        encoded_prompt.ids
        for encoded_prompt in encode_probe_prompts(engine.tokenizer, [item.prompt for item in probes], form)
    ]
    model = engine.model if engine.name == "batched" else load(job.inputs["model"])[0]
    runs: dict[Any, Callable[[], int]] = {
        "engine": lambda: sum(
            len(completion.ids) for (completion,) in engine.complete(prompts, TokenSampling(parameters.max_new_tokens))
        ),
        "plain": lambda: _plain(model, prompts, parameters.max_new_tokens),
    }
    rows: list[BenchRow] = []
    for round in range(parameters.rounds + 1):
        for name, run in runs.items():
            started = time.perf_counter()
            tokens = run()
            seconds = time.perf_counter() - started
            if not tokens:
                raise SystemExit(f"the {name} run writes no token: there is nothing to time")
            # The first round of each loads and compiles.
            rows += [BenchRow(round=round, run=name, tokens=tokens, seconds=seconds)] if round else []
        job.progress(round, parameters.rounds, "rounds")
    job.write_rows("rows", rows)
    device, dtype = (engine.device, engine.dtype) if engine.name != "batched" else device_of(model)
    effective = parameters.model_dump(mode="json") | {"engine": engine.name, "form": form}
    return StageResult(device, dtype, sum(row.tokens for row in rows), effective, engine.describe_for_manifest())


def _plain(model: Any, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> int:
    """Return how many tokens transformers writes, one prompt after the other, greedily."""
    import torch

    ends = model.generation_config.eos_token_id
    ends = set(ends if isinstance(ends, list) else [ends])
    written = 0
    for prompt in prompts:
        ids = torch.tensor([list(prompt)], device=model.device)
        with torch.no_grad():
            made = model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=max_new_tokens,
                do_sample=False,
                pad_token_id=min((end for end in ends if end is not None), default=0),
            )
        # The engine does not count the end token either.
        written += sum(value not in ends for value in made[0, len(prompt) :].tolist())
    return written
