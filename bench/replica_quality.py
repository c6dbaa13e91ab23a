"""Do replicas teach what one process teaches? SmolLM2-135M learns answers of a form from equal tokens, both ways.

    .venv/bin/python -m bench.replica_quality --out bench/results/replica_quality.json   # ten minutes
    .venv/bin/python -m bench.replica_quality --tiny                                     # a random model

One process trains adapters in batches of 8; two replicas share the same examples, 4 each a step, and synchronise after
every fourth step. Both models, and the granted one, then answer held-out prompts on other topics, of its own for each
seed, so that the exact McNemar test counts no prompt twice. A seed that is in ``--out`` already is not run again.
Exit code 1 if the two ways learned from unequal tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from bench.composer.learning import FIRST_SEED, LORA, data_of, right_answer, right_answers
from reviews.statistics.mcnemar import exact_mcnemar
from reviews.statistics.paired_binary import lift
from specs.stages.artifacts import Item
from tests.fixtures.tiny_training import training_job, write_lines

GIVEN: dict[str, Any] = {
    **LORA,
    "learning_rate": 1e-3,
    "epochs": 1,
    "max_length": 160,
}
DISTRIBUTED = {"replicas": 2, "sync_every": 4, "outer": {"lr": 0.7, "momentum": 0.5}}
WAYS = {"granted": None, "one process": False, "two replicas": True}


def trained(folder: Path, model: Path, seed: int, replicas: bool) -> tuple[Path, int]:
    """Train one way; return the checkpoint and how many tokens were learned from."""
    from training.jobs.finetuning.replicas import dispatch

    rows = [
        {"item": item.id, "group": item.group, "kind": item.kind, "sample": 0, "prompt": item.prompt}
        | {"completion": right_answer(item)}
        for item in data_of("dpo").train[:64]
    ]
    arguments: dict[str, Any] = GIVEN | {"seed": seed}
    arguments |= {"batch_size": 4, "distributed": DISTRIBUTED} if replicas else {"batch_size": 8, "snapshot_steps": 100}
    data = write_lines(folder / "examples.jsonl", rows)
    job = training_job(folder / "run" / "jobs" / "job", "sft", model, data, **arguments)
    (job.folder / "order.json").write_bytes(job.order.canonical())
    (job.folder / "claim").mkdir()
    claim = {"key": job.order.key, "pid": os.getppid()}
    (job.folder / "claim" / "claim.json").write_text(json.dumps(claim), encoding="utf-8")
    with redirect_stdout(sys.stderr):
        done = dispatch.sft(job)
    return job.out / "checkpoint", done.tokens


def one_seed(folder: Path, model: Path, seed: int, items: Sequence[Item]) -> dict[str, Any]:
    """Train both ways; return the tokens that each model learned from, and which of its answers are right."""
    results: dict[str, Any] = {}
    for way, replicas in WAYS.items():
        made, tokens = (model, 0) if replicas is None else trained(folder / way[:3], model, seed, replicas)
        right = right_answers(made, "format_instructions", items, 48)
        results[way] = {"tokens": tokens, "right": right}
        print(f"seed {seed}, {way}: {sum(right)} of {len(items)}, {tokens} tokens", file=sys.stderr, flush=True)
    return results


def table(results: dict[str, Any]) -> list[str]:
    """Return the lines of the table that pages quote."""
    seeds = results["seeds"]
    lines = ["| seed | tokens learned from, each way | held-out prompts | granted | one process | two replicas |"]
    lines.append("|---|---|---|---|---|---|")
    for seed, result in seeds.items():
        tokens = " / ".join(
            f"{tokens:,}" for tokens in sorted({result[way]["tokens"] for way in WAYS if way != "granted"})
        )
        right = [result[way]["right"] for way in WAYS]
        lines.append(f"| {seed} | {tokens} | {len(right[0])} | {' | '.join(str(sum(value)) for value in right)} |")
    value, two = ([right for seed in seeds.values() for right in seed[way]["right"]] for way in list(WAYS)[1:])
    gained, lost = (sum(a and not b for a, b in zip(x, y, strict=True)) for x, y in ((two, value), (value, two)))
    apart = lift(value, two)
    low, high = apart.interval
    message = (
        f"Two replicas less one process, over {apart.n} prompts: {apart.difference:+.3f} [{low:+.3f}, {high:+.3f}], "
    )
    return [*lines, "", f"{message}gained {gained}, lost {lost}, p = {exact_mcnemar(gained, lost):.2g}."]


def main() -> int:
    """Print the table; with ``--out`` write what it is of."""
    parser = argparse.ArgumentParser(prog="python -m bench.replica_quality", description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="a random model of two layers")
    parser.add_argument("--seeds", type=int, default=3, help=f"how many, from {FIRST_SEED} on")
    parser.add_argument("--items", type=int, default=40, help="held-out prompts of a seed")
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    namespace = parser.parse_args()
    settings = GIVEN | {"distributed": DISTRIBUTED, "model": "random" if namespace.tiny else "SmolLM2-135M"}
    results: dict[str, Any] = {"settings": settings, "seeds": {}}
    if namespace.out and namespace.out.is_file():
        results = json.loads(namespace.out.read_bytes())
        if results["settings"] != settings:
            raise SystemExit(f"{namespace.out} holds figures of other settings; remove it, or name another file")
    with tempfile.TemporaryDirectory(prefix="peergate-replicas-") as name:
        if namespace.tiny:
            from tests.fixtures.tiny_training import tiny_checkpoint

            model = tiny_checkpoint(Path(name) / "model")
        else:
            from bench.critics import weights

            model = weights()
        for place in range(namespace.seeds):
            items = data_of("dpo").held[place * namespace.items : (place + 1) * namespace.items]
            seed = str(FIRST_SEED + place)
            if seed not in results["seeds"]:
                results["seeds"][seed] = one_seed(Path(name) / seed, model, FIRST_SEED + place, items)
                if namespace.out:
                    namespace.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print("\n".join(table(results)))
    every = results["seeds"].values()
    return int(any(result["one process"]["tokens"] != result["two replicas"]["tokens"] for result in every))


if __name__ == "__main__":
    raise SystemExit(main())
