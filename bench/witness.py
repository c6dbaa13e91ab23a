"""What does a witness read of honest answers, what of others, and what does it cost? Gaps, alarms and ratio in one run.

    .venv/bin/python -m bench.witness                     # float32, some minutes on two quiet cores
    .venv/bin/python -m bench.witness --dtype bfloat16 --device cuda
    .venv/bin/python -m bench.witness --engine llama

The named engine writes answers to held-out prompts of the demo, greedily and by sampling, in batches of several sizes;
the witness reads them with its own batches. Printed are the largest gap of honest greedy answers with its tolerance
(``specs/stages/base/witness.py``), how many honest answers would fail, and how many do of each of these: a prompt
without its last word, one token replaced, other temperatures, another seed, weights of 8 and 4 bits, weights moved by
two in a hundred, one projection by one in a hundred. Next to each: how likely a failing row is among so many read,
what reading so many costs, as a share of writing all, and the area under the curve: how often the mean gap of
drawn answers of 300 tokens together, each clipped at 1, is larger than that of honest ones. Exit code 1 if an honest
answer fails.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from math import comb
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from reviews.gate.challenge import sample_size
from specs.stages.base.sampling import ENGINES
from testing.fixtures.real_model import smollm2_checkpoint

HOME = Path(__file__).parent.parent
CURVE_TOKENS, DRAWS = 300, 400


def main() -> int:
    """Write answers, read them, and print what was found; 1 if an honest answer fails."""
    parser = argparse.ArgumentParser(description="Honest answers and others, as a witness reads them.")
    parser.add_argument("--answers", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 8, 24], help="batches in which answers are written")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--engine", choices=list(ENGINES), default="batched")
    return 1 if measure(parser.parse_args()).honest_failing else 0


class WitnessPower(NamedTuple):
    """What a witness reads of honest answers and of others."""

    honest: int
    honest_failing: int
    share: float
    """The time of reading all answers, divided by that of writing them."""
    areas: dict[str, float]
    """The area under the curve of each way in which answers were made otherwise."""


def measure(namespace: argparse.Namespace) -> WitnessPower:
    """Write answers, read them, print what was found and return it."""
    import torch

    from reviews.checks.witness_checks import wrong_rows
    from specs.stages.base.witness import GREEDY_GAP, NUCLEUS, WitnessRow
    from training.engines.batched import Completion
    from training.engines.checkpoint import load
    from training.engines.engine import BatchedEngine
    from training.engines.engine_factory import make_engine
    from training.engines.sampling_noise import stream_of
    from training.engines.token_sampling import TokenSampling
    from training.jobs.witness.prompted_answers import PromptedAnswer, answer
    from training.jobs.witness.reading import read
    from training.rules.tasks import load_items

    folder = smollm2_checkpoint()
    model, tokenizer = load(folder, namespace.device, getattr(torch, namespace.dtype))
    items = load_items(HOME / "specs" / "library" / "data" / "format_heldout.jsonl")[: namespace.answers]

    prompts = encode_prompts(tokenizer, [item.prompt for item in items])
    greedy, warm = TokenSampling(namespace.tokens), TokenSampling(namespace.tokens, temperature=0.8, top_p=0.95)

    def write_answers(sampling: TokenSampling, size: int) -> tuple[list[Completion], float]:
        engine: Any = BatchedEngine(model, tokenizer, size, share=False)
        if namespace.engine != "batched":
            engine = make_engine(namespace.engine, folder, size, scratch=Path(tempfile.gettempdir()))
        began = time.perf_counter()
        done = engine.complete(prompts, sampling, seed=3)
        return [value for (value,) in done], time.perf_counter() - began

    def read_answers(
        outputs: Sequence[Completion], sampling: TokenSampling, texts: Sequence[tuple[int, ...]], seed: int = 3
    ) -> list[PromptedAnswer]:
        known = ENGINES[namespace.engine].streams
        return [
            answer(
                place,
                prompt,
                sampling,
                ids=completion.ids,
                text=completion.text,
                finish=completion.finish,
                stream=stream_of(seed, place, 0) if known else None,
            )
            for place, (prompt, completion) in enumerate(zip(texts, outputs, strict=True))
        ]

    def failing(rows: Sequence[WitnessRow]) -> int:
        return len({wrong_row["row"] for wrong_row in wrong_rows("bench", rows, namespace.dtype)})

    count, honest, writing, reading = 0, 0, 0.0, 0.0
    areas: dict[str, float] = {}
    honest_rows: dict[str, list[WitnessRow]] = {}
    completions: dict[str, list[Completion]] = {}
    for name, sampling in (("greedy", greedy), ("sampled", warm)):
        for size in namespace.sizes:
            outputs, seconds = write_answers(sampling, size)
            began = time.perf_counter()
            rows = list(read(model, tokenizer, read_answers(outputs, sampling, prompts)))
            writing += seconds
            reading += time.perf_counter() - began
            count += len(rows)
            wrong = failing(rows)
            honest += wrong
            gap = max((row.gap or 0.0 for row in rows), default=0.0)
            beyond = max((row.beyond for row in rows if row.beyond is not None), default=0.0)
            message = f"at most {beyond:.2g} past the nucleus, {NUCLEUS[namespace.dtype]:g} are allowed"
            if name == "greedy":
                message = f"at most {gap:.2g} below the largest logit, {GREEDY_GAP[namespace.dtype]:g} are allowed"
            print(f"{name}, written {size} at once: {message}; {wrong} of {len(rows)} honest answers fail")
            completions[name], honest_rows[name] = outputs, rows
    ratio = reading / writing
    print(f"reading all of them took {ratio:.2f} x as long as writing them ({reading:.1f} s)")
    fewer = encode_prompts(tokenizer, [item.prompt.rsplit(" ", 1)[0] for item in items])
    swapped = [
        completion._replace(ids=(*completion.ids[:2], completion.ids[-1], *completion.ids[3:]))
        for completion in completions["greedy"]
    ]
    others: dict[str, tuple[list[Completion], TokenSampling, list[tuple[int, ...]]]] = {
        "greedy, a prompt without its last word": (completions["greedy"], greedy, fewer),
        "greedy, one token replaced": (swapped, greedy, prompts),
        "sampled at 0.8, granted 1.0": (completions["sampled"], warm._replace(temperature=1.0), prompts),
        "sampled at 0.8, granted 0.6": (completions["sampled"], warm._replace(temperature=0.6), prompts),
        "sampled, a prompt without its last word": (completions["sampled"], warm, fewer),
    }

    def report(what: str, name: str, requests: Sequence[PromptedAnswer]) -> None:
        rows = list(read(model, tokenizer, requests))
        areas[what] = compute_area(honest_rows[name], rows)
        print(f"{what}: {_count_detections(failing(rows), len(rows), ratio)}; area under the curve {areas[what]:.4f}")

    for what, (outputs, sampling, texts) in others.items():
        report(what, what.split(",")[0].split()[0], read_answers(outputs, sampling, texts))
    report("sampled, another seed", "sampled", read_answers(completions["sampled"], warm, prompts, seed=4))
    for what in change_weights(model):
        for name, sampling in (("greedy", greedy), ("sampled", warm)):
            report(f"{name}, {what}", name, read_answers(completions[name], sampling, prompts))
    return WitnessPower(count, honest, ratio, areas)


def encode_prompts(tokenizer: Any, texts: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the token ids of prompts in the model's chat template."""
    from training.rules.prompt_encoding import dialogue_ids

    return [dialogue_ids(tokenizer, [{"role": "user", "content": text}], "chat").ids for text in texts]


def change_weights(model: Any) -> Iterator[str]:
    """Change a model's weights in one way after the other, and yield what was changed each time."""
    import torch

    weights = {name: value.detach().clone() for name, value in model.named_parameters()}
    noise = torch.Generator().manual_seed(1)

    def move(value: Any) -> Any:
        return value * (1 + 0.02 * torch.randn(value.shape, generator=noise, dtype=torch.float32)).to(value)

    changes: dict[str, Callable[[str, Any], Any]] = {
        "weights moved by two in a hundred": lambda _, value: move(value),
        "weights of 8 bits": lambda _, value: quantise(value, 8),
        "weights of 4 bits": lambda _, value: quantise(value, 4),
        "one projection scaled by 0.99": lambda name, value: value * 0.99 if "0.self_attn.v_proj" in name else value,
    }
    for what, change in changes.items():
        with torch.no_grad():
            for name, value in model.named_parameters():
                value.copy_(change(name, weights[name]))
        yield what


def quantise(value: Any, bits: int) -> Any:
    """Return a matrix rounded to so many bits, each row by its largest absolute value; a vector as it is."""
    if value.dim() < 2:
        return value
    scale = value.abs().amax(-1, keepdim=True).clamp(min=1e-12) / (2 ** (bits - 1) - 1)
    return (value / scale).round() * scale


def compute_area(honest: Sequence[Any], others: Sequence[Any]) -> float:
    """Return how often answers of 300 tokens have a larger mean gap than honest ones; equal ones count half."""
    chance = Random(5)

    def mean_gaps(rows: Sequence[Any]) -> list[float]:
        means: list[float] = []
        for _ in range(DRAWS):
            gaps, tokens = list[float](), 0
            while tokens < CURVE_TOKENS:
                row = chance.choice(rows)
                gaps.append(min(row.gap or 0.0, 1.0))
                tokens += row.tokens
            means.append(sum(gaps) / len(gaps))
        return means

    ours, theirs = mean_gaps(honest), mean_gaps(others)
    return sum((other > own) + (other == own) / 2 for other in theirs for own in ours) / len(ours) / len(theirs)


def _count_detections(failing: int, rows: int, ratio: float) -> str:
    """Return how likely a failing row is among those read, and what reading so many costs, as a share of writing."""
    parts: list[str] = []
    for read in sorted({size for size in (1, 2, 4, 8, 16, 32) if size < rows} | {sample_size(rows), rows}):
        chance = 1 - comb(rows - failing, read) / comb(rows, read)
        parts.append(f"{read} rows {chance:.0%} for {ratio * read / rows:.1%}")
    return f"{failing} of {rows} fail" + (f"; one is found: {', '.join(parts)}" if failing else "")


if __name__ == "__main__":
    raise SystemExit(main())
