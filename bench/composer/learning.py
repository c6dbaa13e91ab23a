"""What each channel learns alone, on prompts and pairs that nothing trained on, against its control.

    .venv/bin/python -m bench.composer.learning --tiny --steps 6 --items 4 --seeds 1 --out learning  # a random model
    .venv/bin/python -m bench.composer.learning --out learning                  # SmolLM2-135M: hours of one core

| channel | held-out measure | control |
|---|---|---|
| grpo | answers without a comma, as their prompt asks: the verifier's word | the rewards of a group are shuffled |
| sdpo | answers with a title, as their prompt asks; the teacher reads one | it reads an answer to another prompt |
| dpo | pairs of which the right side gained more than the wrong one | half of the training pairs are turned round |

Answers are greedy, to the bare prompt. Both sides of a pair are about one topic: one has the form that its prompt asks
for, the other that of another prompt, so that neither is better in general. Each seed has its own held-out items.

*shown*: better than the control in each of three seeds, and pooled over them exact McNemar p < 0.05 on at least 120
items. Everything else is *not shown*. Each training leaves a file in ``--out`` and is not done again; ``--together``
writes what they found into one. None of it is part of the tests.
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
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from reviews.statistics.mcnemar import exact_mcnemar
from specs.stages.base.artifacts import Item
from testing.fixtures.stage_jobs import stage_job
from testing.fixtures.tiny_training import write_lines
from training.items.format_items import (
    HELDOUT_TOPICS,
    LARGE_HELDOUT_TOPICS,
    LARGE_TRAIN_TOPICS,
    TRAIN_TOPICS,
    build_items,
)
from training.rules.tasks import verifier

ALPHA, FEWEST, SEEDS, FIRST_SEED = 0.05, 120, 3, 11
CHANNELS = ("dpo", "sdpo", "grpo")
ARMS = ("channel", "control")
STEPS = {"dpo": 20, "sdpo": 8, "grpo": 12}
ANSWER_TOKENS = {"sdpo": 32, "grpo": 20}
"""The limit of a held-out answer; pairs are only read."""
LORA: dict[str, Any] = {
    "method": "lora",
    "lora_rank": 16,
    "lora_alpha": 32,
    "lora_dropout": 0.0,
    "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
}
SETTINGS: dict[str, Any] = {
    **LORA,
    "rewards": {"verified": 1.0},
    "learning_rate": 1e-3,
    "kl_weight": 0.0,
    "snapshot_steps": 1000,
    "validation_share": 0.0,
    "silent_steps": 1000,
}
OF_CHANNEL: dict[str, dict[str, Any]] = {
    "grpo": {"generations": 4, "batch_size": 8, "max_new_tokens": 20, "scheduler": "constant"},
    "sdpo": {
        "generations": 2,
        "batch_size": 4,
        "max_new_tokens": 16,
        "scheduler": "constant",
        "self_distillation": {"beta": 0.0},
    },
    # A composer always answers: as little as there is.
    "dpo": {
        "generations": 2,
        "batch_size": 2,
        "max_new_tokens": 1,
        "learning_rate": 5e-4,
        "scheduler": "linear",
        "warmup_steps": 2,
        "replayed_pairs": {"batch_size": 2},
    },
}


class Data(NamedTuple):
    """What a channel learns from, and what it is measured on."""

    task: str
    train: list[Item]
    heldout: list[Item]


ASKS = {
    "no_comma": (
        "Describe {} in one sentence. Do not use any commas.",
        "What do you know about {}? Do not use any commas.",
    ),
    "title": (
        "Write one sentence about {}. Put a title wrapped in << and >> on the first line.",
        "Tell me something about {}. Put a title wrapped in << and >> on the first line.",
    ),
}


def data_of(channel: str) -> Data:
    """Return a channel's items."""
    if channel == "dpo":
        items = (build_items(name, topics) for name, topics in (("train", TRAIN_TOPICS), ("held", HELDOUT_TOPICS)))
        return Data("format_instructions", *items)
    task, kind = ("instruction_following", "no_comma") if channel == "grpo" else ("format_instructions", "title")
    constraint: dict[str, str | int] = {"1": "punctuation:no_comma"} if channel == "grpo" else {}
    train, backlog_items = (
        [
            Item(id=f"{topic}-{number}", group=topic, kind=kind, prompt=ask.format(topic), constraint=constraint)
            for topic in topics
            for number, ask in enumerate(ASKS[kind])
        ]
        for topics in (LARGE_TRAIN_TOPICS, LARGE_HELDOUT_TOPICS)
    )
    return Data(task, train, backlog_items)


def right_answer(item: Item, topic: str | None = None) -> str:
    """Return an answer about an item's topic, or another, in the form that the item asks for."""
    about = topic or item.group
    text = f"Most people have read something about {about} at least once."
    if item.kind == "bullets":
        return "\n".join(f"- Fact {place + 1} about {about}." for place in range(int(item.constraint["count"])))
    forms = {
        "lowercase": text.lower(),
        "uppercase": text.upper(),
        "quoted": f'"{text}"',
        "ending": f"{text} {item.constraint.get('phrase')}",
        "title": f"<<On {about}>>\n{text}",
    }
    return forms[item.kind]


def sides(items: Sequence[Item], place: int) -> tuple[str, str]:
    """Return the right and the wrong answer to an item: the wrong one has the form of a later item of another kind."""
    backlog_item = items[place]
    other = items[(place + 1 + place % 5) % len(items)]
    return right_answer(backlog_item), right_answer(other, backlog_item.group)


def pairs_of(items: Sequence[Item], count: int, turned: int | None) -> list[dict[str, Any]]:
    """Return right and wrong answers to the first items; with a seed for ``turned``, half of them the other way."""
    half = set(random.Random(turned).sample(range(count), count // 2)) if turned is not None else set[int]()
    results: list[dict[str, Any]] = []
    for place, item in enumerate(items[:count]):
        right, wrong = sides(items, place)
        chosen, rejected = (wrong, right) if place in half else (right, wrong)
        row = {"prompt": item.prompt, "chosen": chosen, "rejected": rejected, "group": item.id, "source": "given"}
        results.append(row)
    return results


@contextmanager
def rewards_shuffled(seed: int) -> Generator[None]:
    """Give each answer of a group the reward of one of them, while this lasts."""
    from training.jobs.finetuning.online.recorded import Rollouts

    original, drawn, size = Rollouts.values, random.Random(seed), OF_CHANNEL["grpo"]["generations"]

    def values(self: Rollouts, reward: str) -> list[float]:
        matching_values = original(self, reward)
        groups = [matching_values[at : at + size] for at in range(0, len(matching_values), size)]
        return [value for group in groups for value in drawn.sample(group, len(group))]

    Rollouts.values = values
    try:
        yield
    finally:
        Rollouts.values = original


@contextmanager
def add_hint(backlog_items: Sequence[Item]) -> Generator[None]:
    """Have the teacher of the answers to a row read a right answer to the item of the same place, while this lasts."""
    from training.jobs.finetuning.online.recorded import Rollouts

    original = Rollouts.judge

    def judge(self: Rollouts, step: int, places: Sequence[int], completions: Sequence[Sequence[int]]) -> None:
        original(self, step, places, completions)
        self.hints = [f"Repeat this, word for word:\n{right_answer(backlog_items[place])}" for place in places]

    Rollouts.judge = judge
    try:
        yield
    finally:
        Rollouts.judge = original


def train_channels(folder: Path, model: Path, channel: str, seed: int, items: Sequence[Item], pairs: Any = ()) -> Path:
    """Train one channel alone; return the folder of what the job wrote."""
    import torch

    from training.jobs.finetuning.online.job import train_on_rollouts
    from training.jobs.job import Job

    inputs = {"model": model, "prompts": write_lines(folder / "prompts.jsonl", [item.model_dump() for item in items])}
    weights = {name: float(name == channel) for name in CHANNELS}
    if channel == "dpo":
        inputs["pairs"] = write_lines(folder / "pairs.jsonl", pairs)
    arguments = SETTINGS | OF_CHANNEL[channel]
    job = stage_job(folder / "job", "composer", inputs, "instruct", channels=weights, seed=seed, **arguments)
    job = Job(job.folder, job.order.model_copy(update={"task": data_of(channel).task}))
    torch.manual_seed(seed)
    # The trainer prints a line a step.
    with redirect_stdout(sys.stderr):
        train_on_rollouts(job)
    return job.out


def right_answers(checkpoint: Path, task: str, items: Sequence[Item], most: int) -> list[bool]:
    """Return for each held-out item whether the verifier accepts the greedy answer to the bare prompt."""
    from training.engines.checkpoint import load
    from training.engines.engine import BatchedEngine
    from training.engines.token_sampling import TokenSampling
    from training.rules.prompt_encoding import prompt_ids

    model, tokenizer = load(checkpoint)
    prompts = [prompt_ids(tokenizer, item.prompt, "chat").ids for item in items]
    outputs = BatchedEngine(model, tokenizer, 40).complete(prompts, TokenSampling(most), seed=0)
    return [verifier(task)(item, completion.text).passed for item, (completion,) in zip(items, outputs, strict=True)]


@cache
def margins(checkpoint: Path, current: range) -> list[float]:
    """Return how much likelier the right side of each held-out pair is than the wrong one, in nats."""
    import torch

    from training.engines.checkpoint import load
    from training.jobs.finetuning.loss_comparison import sums
    from training.rules.prompt_encoding import prompt_ids

    model, tokenizer = load(checkpoint)
    items, values = data_of("dpo").heldout, list[float]()
    for place in current:
        prompt = list(prompt_ids(tokenizer, items[place].prompt, "chat").ids)
        both = [list(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in sides(items, place)]
        with torch.no_grad():
            (right, _), (wrong, _) = sums(model.eval(), [(prompt + side, len(prompt)) for side in both])
        values.append(right - wrong)
    return values


def one_training(model: Path, channel: str, seed: int, control: bool, steps: int, current: range) -> Any:
    """Train and measure; return whether each held-out item came out right, what the steps said, and the time."""
    from specs.stages.finetuning.online_rows import RolloutStep
    from training.jobs.row_files import read_rows

    clock, cpu = time.monotonic(), time.process_time()
    data, arguments = data_of(channel), OF_CHANNEL[channel]
    train = data.train[: steps * arguments["batch_size"] // arguments["generations"]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if channel == "sdpo":
            # Of the control: about another topic, in another form.
            other = [item for item in build_items("other", TRAIN_TOPICS[::-1]) if item.kind != "title"]
            with add_hint(other if control else train):
                out = train_channels(folder, model, channel, seed, train)
        elif channel == "grpo" and control:
            with rewards_shuffled(seed):
                out = train_channels(folder, model, channel, seed, train)
        else:
            # Two a step, in turns.
            pairs = pairs_of(data.train, 2 * steps, seed if control else None) if channel == "dpo" else ()
            out = train_channels(folder, model, channel, seed, train, pairs)
        trained_s = time.process_time() - cpu
        rows = read_rows(out / "rows.jsonl", RolloutStep)
        if channel == "dpo":
            after, before = (margins(path, current) for path in (out / "checkpoint", model))
            right = [value > other for value, other in zip(after, before, strict=True)]
        else:
            right = right_answers(
                out / "checkpoint", data.task, [data.heldout[value] for value in current], ANSWER_TOKENS[channel]
            )
    return {
        "channel": channel,
        "arm": ARMS[control],
        "seed": seed,
        "steps": len(rows),
        "losses": [round(rollout_step.channels[channel].loss, 5) for rollout_step in rows],
        "learned_from": sum(rollout_step.channels[channel].rows for rollout_step in rows),
        "items": [data.heldout[value].id for value in current],
        "right": right,
        "training_cpu_s": round(trained_s, 1),
        "cpu_s": round(time.process_time() - cpu, 1),
        "clock_s": round(time.monotonic() - clock, 1),
    }


def conclude(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return counts, the pooled test and the status of a channel, from the files of its trainings."""
    by_seed: dict[int, dict[str, Any]] = {}
    for value in results:
        by_seed.setdefault(value["seed"], {})[value["arm"]] = value
    whole = [(both["channel"], both["control"]) for _, both in sorted(by_seed.items()) if len(both) == len(ARMS)]
    if any(value["items"] != other["items"] for value, other in whole):
        raise SystemExit("a channel and its control were measured on different items")
    pairs = [both for value, other in whole for both in zip(value["right"], other["right"], strict=True)]
    gained, lost = sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs)
    in_each = all(sum(value["right"]) > sum(other["right"]) for value, other in whole)
    p = exact_mcnemar(gained, lost)
    flag = in_each and p < ALPHA and len(pairs) >= FEWEST and len(whole) >= SEEDS
    return {
        "steps": sorted({value["steps"] for both in whole for value in both}),
        "seeds": [
            {"channel": sum(value["right"]), "control": sum(other["right"]), "of": len(value["right"])}
            for value, other in whole
        ],
        "gained": gained,
        "lost": lost,
        "p": float(f"{p:.2g}"),
        "cpu_hours": round(sum(value["cpu_s"] for both in whole for value in both) / 3600, 2),
        "status": "shown" if flag else "not shown",
    }


def table(results: dict[str, Any]) -> list[str]:
    """Return the lines of the table that pages quote, from the file that ``--together`` wrote."""
    lines = ["| channel | steps | CPU hours | right by seed: channel / control | gained, lost | p | |"]
    lines.append("|---|---|---|---|---|---|---|")
    for name, channel in results["channels"].items():
        seeds = ", ".join(f"{seed['channel']} / {seed['control']} of {seed['of']}" for seed in channel["seeds"])
        steps = ", ".join(map(str, channel["steps"]))
        counts = f"{channel['gained']}, {channel['lost']} | {channel['p']:.2g} | {channel['status']}"
        lines.append(f"| {name} | {steps} | {channel['cpu_hours']} | {seeds} | {counts} |")
    return lines


def main() -> int:
    """Train what is missing in ``--out``, or merge existing results into one file; print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.composer.learning", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    parser.add_argument("--steps", type=int, help="of each training, instead of 20, 8 and 12")
    parser.add_argument("--items", type=int, default=FEWEST // SEEDS, help="held-out items of a seed")
    parser.add_argument("--tiny", action="store_true", help="a random model of two layers")
    parser.add_argument("--channels", nargs="+", default=list(CHANNELS), choices=CHANNELS)
    parser.add_argument("--out", type=Path, required=True, help="a folder for a file of each training")
    parser.add_argument("--together", type=Path, help="train nothing; merge existing results into one file")
    namespace = parser.parse_args()
    namespace.out.mkdir(parents=True, exist_ok=True)
    if namespace.together is None:
        _train(namespace)
    result = [json.loads(path.read_bytes()) for path in sorted(namespace.out.glob("*.json"))]
    by_channel = {name: [value for value in result if value["channel"] == name] for name in namespace.channels}
    results = {
        "settings": {"all": SETTINGS, **{name: OF_CHANNEL[name] for name in namespace.channels}},
        "channels": {name: conclude(trainings) for name, trainings in by_channel.items() if trainings},
        "trainings": result,
    }
    print("\n".join(table(results)))
    if namespace.together:
        namespace.together.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


def _train(namespace: argparse.Namespace) -> None:
    from testing.fixtures.real_model import smollm2_checkpoint

    with tempfile.TemporaryDirectory() as name:
        if namespace.tiny:
            from testing.fixtures.tiny_training import tiny_checkpoint

            model = tiny_checkpoint(Path(name) / "model")
        else:
            model = smollm2_checkpoint()
        for number in range(namespace.seeds):
            for channel in namespace.channels:
                for control in (arm == ARMS[1] for arm in namespace.arms):
                    place = namespace.out / f"{channel}.{FIRST_SEED + number}.{ARMS[control]}.json"
                    if place.exists():
                        continue
                    current = range(namespace.items * number, namespace.items * (number + 1))
                    result = one_training(
                        model, channel, FIRST_SEED + number, control, namespace.steps or STEPS[channel], current
                    )
                    place.write_text(json.dumps(result), encoding="utf-8")
                    print(f"{place.name}: {sum(result['right'])} of {len(current)}, {result['cpu_s']} s", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
