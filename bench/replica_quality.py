"""Do replicas teach what one process teaches? SmolLM2-135M learns answers of a form from equal tokens, both ways.

    .venv/bin/python -m bench.replica_quality --out bench/results/replica_quality.json   # about five minutes of a core
    .venv/bin/python -m bench.replica_quality --tiny                                     # a random model

One process trains adapters in batches of 8; two replicas share the same examples, 4 each a step, and synchronise after
every fourth step. Both models, and the granted one, then answer the same held-out prompts, on other topics. One run of
one seed: it says how far apart the two are, not that replicas are as good. Exit code 1 if they read unequal tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from bench.composer.learning import LORA, data_of, right_answer, right_answers
from reviews.statistics.mcnemar import exact_mcnemar
from reviews.statistics.paired_binary import lift
from tests.fixtures.tiny_training import training_job, write_lines

GIVEN: dict[str, Any] = {
    **LORA,
    "learning_rate": 1e-3,
    "epochs": 1,
    "max_length": 160,
    "seed": 11,
}
DISTRIBUTED = {"replicas": 2, "sync_every": 4, "outer": {"lr": 0.7, "momentum": 0.5}}


def trained(folder: Path, model: Path, replicas: bool) -> tuple[Path, int]:
    """Train one way; return the checkpoint and how many tokens were learned from."""
    from training.jobs.finetuning.replicas import dispatch

    rows = [
        {"item": one.id, "group": one.group, "kind": one.kind, "sample": 0, "prompt": one.prompt}
        | {"completion": right_answer(one)}
        for one in data_of("dpo").train[:64]
    ]
    given: dict[str, Any] = GIVEN | (
        {"batch_size": 4, "distributed": DISTRIBUTED} if replicas else {"batch_size": 8, "snapshot_steps": 100}
    )
    data = write_lines(folder / "examples.jsonl", rows)
    job = training_job(folder / "run" / "jobs" / "job", "sft", model, data, **given)
    (job.folder / "order.json").write_bytes(job.order.canonical())
    (job.folder / "claim").mkdir()
    claim = {"key": job.order.key, "pid": os.getppid()}
    (job.folder / "claim" / "claim.json").write_text(json.dumps(claim), encoding="utf-8")
    with redirect_stdout(sys.stderr):
        done = dispatch.sft(job)
    return job.out / "checkpoint", done.tokens


def table(found: dict[str, Any]) -> list[str]:
    """Return the lines of the table that pages quote."""
    lines = ["| model | tokens learned from | right, of held-out answers |", "|---|---|---|"]
    for name, one in found["models"].items():
        lines.append(f"| {name} | {one['tokens']:,} | {sum(one['right'])} of {len(one['right'])} |")
    low, high = found["interval"]
    message = f"Two replicas less one process: {found['difference']:+.3f} [{low:+.3f}, {high:+.3f}], "
    return [*lines, "", f"{message}gained {found['gained']}, lost {found['lost']}, p = {found['p']:.2g}."]


def main() -> int:
    """Print the table; with ``--out`` write what it is of."""
    parser = argparse.ArgumentParser(prog="python -m bench.replica_quality", description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="a random model of two layers")
    parser.add_argument("--items", type=int, default=40)
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    given = parser.parse_args()
    held = data_of("dpo").held[: given.items]
    models: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="peergate-replicas-") as name:
        if given.tiny:
            from tests.fixtures.tiny_training import tiny_checkpoint

            model = tiny_checkpoint(Path(name) / "model")
        else:
            from bench.critics import weights

            model = weights()
        ways = {"granted": None, "one process": False, "two replicas": True}
        for way, replicas in ways.items():
            made, tokens = (
                (model, 0) if replicas is None else trained(Path(name) / way.replace(" ", "_"), model, replicas)
            )
            right = right_answers(made, "format_instructions", held, 48)
            models[way] = {"tokens": tokens, "right": right}
            print(f"{way}: {sum(right)} of {len(held)}, {tokens} tokens", file=sys.stderr, flush=True)
    one, two = models["one process"]["right"], models["two replicas"]["right"]
    gained, lost = (
        sum(b and not a for a, b in zip(one, two, strict=True)),
        sum(a and not b for a, b in zip(one, two, strict=True)),
    )
    apart = lift(one, two)
    found = {
        "settings": GIVEN | {"distributed": DISTRIBUTED, "model": "random" if given.tiny else "SmolLM2-135M"},
        "models": models,
        "difference": apart.difference,
        "interval": apart.interval,
        "gained": gained,
        "lost": lost,
        "p": exact_mcnemar(gained, lost),
    }
    print("\n".join(table(found)))
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return int(models["one process"]["tokens"] != models["two replicas"]["tokens"])


if __name__ == "__main__":
    raise SystemExit(main())
