"""How much faster are answers written than with plain ``generate``, one prompt at a time? Seconds and ratio in one run.

    .venv/bin/python -m bench.generate              # about a minute on two quiet cores
    .venv/bin/python -m bench.generate --engine llama

Both write answers to the same instructions, after the same worked pairs, with the sampling of `sample_responses`:
its temperature, nucleus, repetition penalty and stop strings. The peer is transformers' own ``generate`` with its
``stop_strings``. The limit: 3 times as many tokens a second. Without sampling both have to write the same text; how
many of the answers are equal is printed, because sums of floating point numbers differ with the size of a batch.

``--engine`` names another engine of stages. The batched one is timed next to it then, and the penalty is left out on
all sides where the engine has none.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from specs.stages.base.sampling import ENGINES
from testing.fixtures.real_model import smollm2_checkpoint

HOME = Path(__file__).parent.parent
LIMIT = 3.0


def main() -> int:
    """Time both ways and print them."""
    parser = argparse.ArgumentParser(description="Answers in batches against generate, one prompt at a time.")
    parser.add_argument("--instructions", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--compared", type=int, default=2, help="answers written greedily both ways and compared")
    parser.add_argument("--engine", choices=list(ENGINES), default="batched")
    rates = measure(parser.parse_args())
    return 0 if rates.ours / rates.peer >= LIMIT else 1


class Rates(NamedTuple):
    """Tokens a second."""

    ours: float
    peer: float
    batched: float | None
    """Of the batched engine, where another one was named."""


def measure(namespace: argparse.Namespace) -> Rates:
    """Time an engine, ``generate`` and the batched engine; print and return the rates."""
    import torch

    from specs.stages.generation.parameters import SampleResponsesParameters
    from training.engines.batched import Completion
    from training.engines.checkpoint import load
    from training.engines.engine import BatchedEngine, CompletionEngine
    from training.engines.engine_factory import make_engine
    from training.engines.token_sampling import TokenSampling
    from training.rules.prompt_encoding import prompt_ids
    from training.rules.prompt_text import answer_prompt
    from training.rules.tasks import load_items

    checkpoint = smollm2_checkpoint()
    model, tokenizer = load(checkpoint)
    parameters = SampleResponsesParameters(max_new_tokens=namespace.tokens)
    items = load_items(HOME / "specs" / "library" / "data" / "format_train.jsonl")[: namespace.instructions]
    texts = [answer_prompt(item.prompt, parameters.shots, "completion") for item in items]
    prompts = [list(prompt_ids(tokenizer, text, "completion").ids) for text in texts]
    sampling = TokenSampling(
        max_new_tokens=namespace.tokens,
        temperature=parameters.temperature,
        top_p=parameters.top_p,
        repetition_penalty=parameters.repetition_penalty if ENGINES[namespace.engine].penalty else 1.0,
        stops=parameters.stops,
        keep_special=True,
    )
    folder, size = checkpoint, parameters.batch_size
    batched = BatchedEngine(model, tokenizer, size)
    engine: CompletionEngine = batched
    if namespace.engine != "batched":
        began = time.perf_counter()
        engine = make_engine(namespace.engine, folder, size, scratch=Path(tempfile.gettempdir()))
        print(f"{engine.description}: {engine.device}, {engine.dtype}, opened in {time.perf_counter() - began:.1f} s")

    def ours(sampling: TokenSampling, batch: list[list[int]], engine: CompletionEngine = engine) -> list[Completion]:
        return [output for (output,) in engine.complete(batch, sampling, seed=1)]

    def peer(sampling: TokenSampling, batch: list[list[int]]) -> list[list[int]]:
        torch.manual_seed(1)
        written: list[list[int]] = []
        for prompt in batch:
            ids = torch.tensor([prompt], device=model.device)
            drawn: dict[str, Any] = {"do_sample": False}
            if sampling.temperature is not None:
                drawn = {"do_sample": True, "temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": 0}
            out: Any = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=sampling.max_new_tokens, tokenizer=tokenizer,
                repetition_penalty=sampling.repetition_penalty, stop_strings=list(sampling.stops), **drawn,
                pad_token_id=tokenizer.pad_token_id,
            )  # fmt: skip
            ids_of_answer = out[0, len(prompt) :].tolist()
            written.append([id for id in ids_of_answer if id != tokenizer.eos_token_id])
        return written

    # Both are warm before they are timed.
    ours(sampling, prompts[:1])
    peer(sampling, prompts[:1])
    began = time.perf_counter()
    mine = sum(len(output.ids) for output in ours(sampling, prompts))
    middle = time.perf_counter()
    theirs = sum(len(ids) for ids in peer(sampling, prompts))
    ended = time.perf_counter()
    rates = {engine.name: mine / (middle - began), "generate, 1 prompt": theirs / (ended - middle)}
    for (name, value), tokens, seconds in zip(
        rates.items(), (mine, theirs), (middle - began, ended - middle), strict=True
    ):
        print(f"{name:<20} {seconds:8.1f} s  {tokens:6} tokens  {value:8.1f} tokens/s", flush=True)
    greedy = sampling._replace(temperature=None)
    pairs = zip(ours(greedy, prompts[: namespace.compared]), peer(greedy, prompts[: namespace.compared]), strict=True)
    equal = sum(list(output.ids) == ids for output, ids in pairs)
    rate = None
    if engine is not batched:
        began = time.perf_counter()
        other = sum(len(output.ids) for output in ours(sampling, prompts, batched))
        rate = other / (time.perf_counter() - began)
        print(f"batched next to it: {rate:.1f} tokens/s, {rates[engine.name] / rate:.2f} times that")
    ratio = rates[engine.name] / rates["generate, 1 prompt"]
    print(f"greedy answers equal, token for token: {equal} of {namespace.compared}")
    print(f"ratio: {ratio:.2f} (limit: >= {LIMIT:g}), {torch.get_num_threads()} threads")
    return Rates(rates[engine.name], rates["generate, 1 prompt"], rate)


if __name__ == "__main__":
    raise SystemExit(main())
