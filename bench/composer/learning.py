"""What each channel learns by itself, on prompts and pairs that nothing trained on, against its control.

    .venv/bin/python -m bench.composer.learning --tiny --steps 6 --items 12 --seeds 1 # a random model
    .venv/bin/python -m bench.composer.learning --out learning.json                     # SmolLM2-135M: hours

| channel | held-out measure | control |
|---|---|---|
| grpo | answers that the verifier accepts | the same, with the rewards of a group shuffled |
| sdpo | answers without a hint that the verifier accepts; its teacher read one | it read one to another prompt |
| dpo | pairs whose margin over the granted model is positive | half of the training pairs turned round |

*shown*: better than the control in each seed, and pooled over the seeds exact McNemar p < 0.05 on at least 120 items.
Everything else is *not shown*. It needs the time of 18 trainings; nothing of it is part of the tests.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from reviews.statistics.mcnemar import exact_mcnemar
from specs.stages.artifacts import Item
from tests.fixtures.stage_jobs import stage_job
from tests.fixtures.tiny_training import write_lines
from training.items.format_items import HELDOUT_TOPICS, TRAIN_TOPICS, build_items
from training.rules.tasks import judged, reference

TASK = "format_instructions"
ALPHA, FEWEST = 0.05, 120
CHANNELS = ("grpo", "sdpo", "dpo")
_WRONG = "NO idea, really: I would rather talk of something else today"
GIVEN: dict[str, Any] = {
    "rewards": {"verified": 1.0},
    "generations": 4,
    "batch_size": 8,
    "max_new_tokens": 48,
    "learning_rate": 5e-6,
    "validation_share": 0.0,
    "silent_steps": 1000,
    "device": "auto",
}


def pairs_of(items: Sequence[Item], turned: int | None) -> list[dict[str, Any]]:
    """Return a right and a wrong answer to each item; with a seed for ``turned``, half of them the other way."""
    half = random.Random(turned).sample(range(len(items)), len(items) // 2) if turned is not None else []
    found: list[dict[str, Any]] = []
    for place, one in enumerate(items):
        sides = (str(reference(TASK, one)), _WRONG)
        chosen, rejected = sides[::-1] if place in half else sides
        found.append(
            {"prompt": one.prompt, "chosen": chosen, "rejected": rejected, "group": one.group, "source": "given"}
        )
    return found


@contextmanager
def rewards_shuffled(seed: int) -> Generator[None]:
    """Give each answer of a group the reward of one of them, while this lasts."""
    from training.jobs.finetuning.online.recorded import Rollouts

    original, drawn = Rollouts.values, random.Random(seed)

    def values(self: Rollouts, reward: str) -> list[float]:
        found, size = original(self, reward), GIVEN["generations"]
        groups = [found[at : at + size] for at in range(0, len(found), size)]
        return [one for group in groups for one in drawn.sample(group, len(group))]

    Rollouts.values = values
    try:
        yield
    finally:
        Rollouts.values = original


@contextmanager
def hinted(items: Sequence[Item], shift: int) -> Generator[None]:
    """Have every teacher read a right answer to the item that comes ``shift`` later; 0 is its own."""
    from training.jobs.finetuning.online.recorded import Rollouts

    original = Rollouts.judge

    def judge(self: Rollouts, step: int, places: Sequence[int], completions: Sequence[Sequence[int]]) -> None:
        original(self, step, places, completions)
        told = (items[(place + shift) % len(items)] for place in places)
        self.hints = [f"A right answer is:\n{reference(TASK, one)}" for one in told]

    Rollouts.judge = judge
    try:
        yield
    finally:
        Rollouts.judge = original


def trained(folder: Path, model: Path, channel: str, seed: int, items: Sequence[Item], turned: int | None) -> Path:
    """Train one channel by itself; return the checkpoint."""
    import torch

    from training.jobs.finetuning.online.job import train_on_rollouts

    inputs = {"model": model, "prompts": write_lines(folder / "prompts.jsonl", [one.model_dump() for one in items])}
    weights = {name: float(name == channel) for name in CHANNELS}
    if channel == "dpo":
        inputs["pairs"] = write_lines(folder / "pairs.jsonl", pairs_of(items, turned))
    job = stage_job(folder / "job", "composer", inputs, "instruct", channels=weights, seed=seed, **GIVEN)
    torch.manual_seed(seed)
    # The trainer prints a line a step.
    with redirect_stdout(sys.stderr):
        train_on_rollouts(job)
    return job.out / "checkpoint"


def right_answers(checkpoint: Path, items: Sequence[Item]) -> list[bool]:
    """Return for each held-out item whether the verifier accepts the greedy answer to the bare prompt."""
    from training.engines.checkpoint import load
    from training.engines.engine import Batched
    from training.engines.token_sampling import Sampling
    from training.rules.prompt_encoding import prompt_ids

    model, tokenizer = load(checkpoint)
    prompts = [prompt_ids(tokenizer, one.prompt, "chat").ids for one in items]
    outputs = Batched(model, tokenizer, 16).complete(prompts, Sampling(GIVEN["max_new_tokens"]), seed=0)
    said = [(item, one.text) for item, (one,) in zip(items, outputs, strict=True)]
    return [one.passed for one in judged(TASK, said)]


def right_margins(checkpoint: Path, granted: Path, items: Sequence[Item]) -> list[bool]:
    """Return for each held-out pair whether the right answer gained on the wrong one, beside the granted model."""
    margins = [_margins(one, items) for one in (checkpoint, granted)]
    return [after > before for after, before in zip(*margins, strict=True)]


def _margins(checkpoint: Path, items: Sequence[Item]) -> list[float]:
    import torch

    from training.engines.checkpoint import load
    from training.jobs.finetuning.loss_comparison import sums
    from training.rules.prompt_encoding import prompt_ids

    model, tokenizer = load(checkpoint)
    found: list[float] = []
    for one in items:
        prompt = list(prompt_ids(tokenizer, one.prompt, "chat").ids)
        sides = [
            list(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in (reference(TASK, one), _WRONG)
        ]
        with torch.no_grad():
            (right, _), (wrong, _) = sums(model.eval(), [(prompt + side, len(prompt)) for side in sides])
        found.append(right - wrong)
    return found


def compared(folder: Path, model: Path, channel: str, seed: int, train: Sequence[Item], held: Sequence[Item]) -> Any:
    """Return for each held-out item what the channel and its control do, as two lists."""
    arms: list[list[bool]] = []
    for control in (False, True):
        place = folder / f"{channel}.{seed}.{'control' if control else 'channel'}"
        place.mkdir(parents=True)
        if channel == "sdpo":
            # A shift by one more than the kinds there are: another topic, and another kind.
            with hinted(train, 7 if control else 0):
                made = trained(place, model, channel, seed, train, None)
        elif channel == "grpo" and control:
            with rewards_shuffled(seed):
                made = trained(place, model, channel, seed, train, None)
        else:
            made = trained(place, model, channel, seed, train, seed if control else None)
        arms.append(right_margins(made, model, held) if channel == "dpo" else right_answers(made, held))
    return arms


def concluded(arms: Sequence[Any]) -> dict[str, Any]:
    """Return counts, the pooled test and the status of a channel, from the pairs of lists of its seeds."""
    pairs = [both for one in arms for both in zip(*one, strict=True)]
    gained, lost = sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs)
    in_each = all(sum(one[0]) > sum(one[1]) for one in arms)
    p = exact_mcnemar(gained, lost)
    shown = in_each and p < ALPHA and len(pairs) >= FEWEST and len(arms) >= 3
    seeds = [{"channel": sum(one[0]), "control": sum(one[1]), "of": len(one[0])} for one in arms]
    return {"seeds": seeds, "gained": gained, "lost": lost, "p": p, "status": "shown" if shown else "not shown"}


def main() -> int:
    """Print a line for each channel; with ``--out`` write the table with its settings."""
    parser = argparse.ArgumentParser(prog="python -m bench.composer.learning", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=72)
    parser.add_argument("--items", type=int, default=120)
    parser.add_argument("--tiny", action="store_true", help="a random model of two layers")
    parser.add_argument("--channels", nargs="+", default=list(CHANNELS), choices=CHANNELS)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    at_once = GIVEN["batch_size"] // GIVEN["generations"]
    train = build_items("train", TRAIN_TOPICS)[: given.steps * at_once]
    held = build_items("heldout", HELDOUT_TOPICS)[: given.items]
    table: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given.tiny:
            from tests.fixtures.tiny_training import tiny_checkpoint

            model = tiny_checkpoint(folder / "model")
            GIVEN.update(max_new_tokens=8, learning_rate=1e-3)
        else:
            from bench.critics import weights

            model = weights()
        for channel in given.channels:
            begin = time.monotonic()
            arms = [compared(folder, model, channel, 11 + seed, train, held) for seed in range(given.seeds)]
            table[channel] = concluded(arms) | {"hours": round((time.monotonic() - begin) / 3600, 4)}
            print(f"{channel}: {json.dumps(table[channel])}", flush=True)
    settings = {**GIVEN, "steps": given.steps, "items": len(held), "model": "random" if given.tiny else "SmolLM2-135M"}
    if given.out:
        given.out.write_text(json.dumps({"settings": settings, "channels": table}, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
