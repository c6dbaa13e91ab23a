"""Training against TRL's own script on the same job: tokens a second, peak memory, share of the machine's matrix rate.

``python -m bench.train [--steps 24] [--hidden 256] [--layers 4]``: each of four runs is a process of its own, so that
peaks of memory do not mix: TRL's trainer as its documentation builds it, with the same settings, then Peergate's stage
with masks, settings and losses watched. A random model, since speed does not depend on what is in the weights.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LIMITS = {"tokens a second, ours / TRL's": (">=", 0.9), "peak memory, ours / TRL's": ("<=", 1.1)}
"""The aim is 1.0; a tenth is what two runs of the same program differ by on two busy cores."""
SETTINGS: dict[str, Any] = {"batch_size": 4, "learning_rate": 1e-4, "max_length": 256, "epochs": 1, "seed": 1}


def matrix_rate(seconds: float = 2.0) -> float:
    """Return the float32 operations a second of large matrix products on this machine, at best."""
    import torch

    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    best, until = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < until:
        begin = time.perf_counter()
        torch.matmul(a, b)
        best = min(best, time.perf_counter() - begin)
    return 2 * 1024**3 / best


def data(kind: str, folder: Path, rows: int) -> Path:
    """Write rows whose lengths differ, as those of real data do."""
    from tests.fixtures.tiny_training import opposites, preferred, write_lines

    made = opposites(rows) if kind == "sft" else preferred(rows)
    for number, row in enumerate(made):
        row["prompt"] += " Think of it." * (number % 9)
    return write_lines(folder / f"{kind}.jsonl", made)


def one(kind: str, who: str, folder: Path, steps: int) -> dict[str, float]:
    """Train once in this process and return seconds of training, tokens and the peak of memory."""
    rows = steps * SETTINGS["batch_size"]
    path, model = data(kind, folder, rows), folder / "model"
    seconds, tokens = _theirs(kind, path, model) if who == "trl" else _ours(kind, path, model, folder / "job")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": seconds, "tokens": tokens, "peak_bytes": peak}


def _timed(trainer: Any) -> tuple[float, float]:
    begin = time.perf_counter()
    trainer.train()
    logs = [line for line in trainer.state.log_history if "num_tokens" in line]
    return time.perf_counter() - begin, float(logs[-1]["num_tokens"])


def _theirs(kind: str, path: Path, model: Path) -> tuple[float, float]:
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl.trainer.dpo_config import DPOConfig
    from trl.trainer.dpo_trainer import DPOTrainer
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    network: Any = AutoModelForCausalLM.from_pretrained(model)
    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    given = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    names = ("completion",) if kind == "sft" else ("chosen", "rejected")
    rows = [
        {"prompt": [{"role": "user", "content": one["prompt"]}]}
        | {name: [{"role": "assistant", "content": one[name]}] for name in names}
        for one in given
    ]
    shared: dict[str, Any] = {
        "output_dir": str(path.parent / "trl"), "per_device_train_batch_size": SETTINGS["batch_size"],
        "learning_rate": SETTINGS["learning_rate"], "max_length": SETTINGS["max_length"], "num_train_epochs": 1,
        "seed": SETTINGS["seed"], "activation_checkpointing": False, "bf16": False, "use_cpu": True,
        "save_strategy": "no", "report_to": "none", "disable_tqdm": True, "logging_steps": 1,
    }  # fmt: skip
    kinds: dict[str, tuple[Any, Any]] = {"sft": (SFTTrainer, SFTConfig), "dpo": (DPOTrainer, DPOConfig)}
    trainer, config = kinds[kind]
    built = trainer(
        model=network, args=config(**shared), train_dataset=Dataset.from_list(rows), processing_class=tokenizer
    )
    return _timed(built)


def _ours(kind: str, path: Path, model: Path, folder: Path) -> tuple[float, float]:
    from tests.fixtures.tiny_training import training_job
    from training.optimise import resuming
    from training.stages import dpo, sft

    more: dict[str, Any] = {"validation_share": 0.0} if kind == "dpo" else {}
    job = training_job(folder / kind, "sft" if kind == "sft" else "dpo", model, path, **SETTINGS, **more)
    found: list[tuple[float, float]] = []

    def timed(trainer: Any, _: Path) -> None:
        found.append(_timed(trainer))

    assert resuming.train is sft.train is dpo.train
    sft.train = dpo.train = timed
    (sft.sft if kind == "sft" else dpo.dpo)(job)
    return found[0]


def main() -> int:
    """Run both kinds with both programs, print ratios and whether they hold."""
    parser = argparse.ArgumentParser(prog="python -m bench.train", description=__doc__)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--run", nargs=3, metavar=("KIND", "WHO", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        kind, who, folder = given.run
        print(json.dumps(one(kind, who, Path(folder), given.steps)))
        return 0
    from tests.fixtures.tiny_training import tiny_checkpoint

    held = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tiny_checkpoint(folder / "model", hidden=given.hidden, layers=given.layers)
        from training.optimise.shapes import from_config

        shape = from_config(folder / "model" / "config.json")
        assert shape is not None
        rate = matrix_rate()
        print(
            f"{shape.parameters():,} parameters, {given.steps} steps; matrix rate {rate / 1e9:.1f} GFLOP/s in float32"
        )
        for kind in ("sft", "dpo"):
            each: dict[str, dict[str, float]] = {}
            for who in ("trl", "peergate"):
                command = [sys.executable, "-m", "bench.train", "--steps", str(given.steps), "--run", kind, who, name]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                each[who] = json.loads(done.stdout.splitlines()[-1])
                speed = each[who]["tokens"] / each[who]["seconds"]
                share = 6 * shape.parameters() * speed / rate
                print(f"{kind} {who}: {speed:,.0f} tokens/s, {share:.1%} of the matrix rate, "
                      f"{each[who]['peak_bytes'] / 1e6:,.0f} MB at the peak")  # fmt: skip
            ours, theirs = each["peergate"], each["trl"]
            ratios = {
                "tokens a second, ours / TRL's": ours["tokens"]
                / ours["seconds"]
                / theirs["tokens"]
                * theirs["seconds"],
                "peak memory, ours / TRL's": ours["peak_bytes"] / theirs["peak_bytes"],
            }
            for what, ratio in ratios.items():
                sign, limit = LIMITS[what]
                holds = ratio >= limit if sign == ">=" else ratio <= limit
                held = held and holds
                print(f"{kind}: {what} = {ratio:.2f} (limit {sign} {limit}) {'holds' if holds else 'DOES NOT HOLD'}")
    return 0 if held else 1


if __name__ == "__main__":
    raise SystemExit(main())
