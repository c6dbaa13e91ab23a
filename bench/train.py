"""Training against TRL's own script on the same job: tokens a second, peak memory, share of the machine's matrix rate.

    .venv/bin/python -m bench.train                                          # a random model of 2.4 million parameters
    .venv/bin/python -m bench.train --real --steps 6 --repeats 2 --kinds sft # SmolLM2-135M
    .venv/bin/python -m bench.train --real --steps 40 --device cuda          # the same in bfloat16; memory is the GPU's

Each run is a separate process, so that peaks of memory do not mix, and the two programs take turns: TRL's trainer as
its documentation builds it, with the same settings, then Peergate's stage with masks, settings and losses watched. Two
times are taken: of the steps alone, and of the job from the files of the model to the last step, since what a program
does before its first step (reading data, a reference's log-probabilities) is work too. Libraries are loaded before.
Both are taken by the clock and in seconds of CPU; on a busy machine only the latter, with one thread, say much.

Limits: tokens a second >= TRL's in each of them, peak memory <= TRL's, of the medians. Either may be off by what runs
of TRL's own script differ by, which is measured here as well: the range of its runs, as a share of their median.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench.composer.step import status

SETTINGS: dict[str, Any] = {"batch_size": 4, "learning_rate": 1e-4, "max_length": 256, "epochs": 1, "seed": 1}
Run = dict[str, float]
"""One run: what ``TIMES`` names, ``tokens``, ``peak_bytes``, and ``grown_bytes`` since libraries were loaded."""


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
    from testing.fixtures.tiny_training import opposites, preferred, write_lines
    from training.rules.seeded_order import file_order

    made = opposites(rows) if kind == "sft" else preferred(rows)
    for number, row in enumerate(made):
        row["prompt"] += " Think of it." * (number % 9)
    if kind == "sft":
        # The stage's own order, so that both programs have the same batches, padded to the same lengths.
        made.sort(key=lambda row: file_order(f"{row['item']}/{row['sample']}", SETTINGS["seed"]))
    return write_lines(folder / f"{kind}.jsonl", made)


def train_once(kind: str, who: str, path: Path, model: Path, folder: Path, threads: int, device: str) -> Run:
    """Train once in this process."""
    # Loaded before either program begins, so that they are in the time of none and in the peak of both.
    for library in ("datasets", "transformers", "trl.trainer.sft_trainer", "trl.trainer.dpo_trainer"):
        importlib.import_module(library)
    import torch

    torch.set_num_threads(threads)
    if device == "cuda":
        SETTINGS["device"] = device
        torch.zeros(1, device=device)
    return (_theirs if who == "trl" else _ours)(kind, path, model, folder)


class Watch:
    """Takes the times of a run and what its memory grew by; begins when it is made."""

    def __init__(self) -> None:
        self._before = status("VmRSS")
        self._clock, self._cpu = time.perf_counter(), time.process_time()

    def steps(self, trainer: Any) -> Run:
        """Train, and return what the whole run took."""
        begin, begin_cpu = time.perf_counter(), time.process_time()
        trainer.train()
        _wait()
        end, end_cpu = time.perf_counter(), time.process_time()
        logs = [line for line in trainer.state.log_history if "num_tokens" in line]
        peak, before = _peak()
        return {
            "steps_seconds": end - begin,
            "job_seconds": end - self._clock,
            "steps_cpu": end_cpu - begin_cpu,
            "job_cpu": end_cpu - self._cpu,
            "tokens": float(logs[-1]["num_tokens"]),
            "peak_bytes": peak,
            "grown_bytes": before if "device" in SETTINGS else peak - self._before,
        }


def _wait() -> None:
    """Wait until the GPU has done what it was given."""
    import torch

    if "device" in SETTINGS:
        torch.cuda.synchronize()


def _peak() -> tuple[int, int]:
    """Return the most bytes of the process; of a GPU, the most that was reserved there and that was in use."""
    import torch

    if "device" in SETTINGS:
        return torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated()
    return status("VmHWM"), 0


def _theirs(kind: str, path: Path, model: Path, folder: Path) -> Run:
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl.trainer.dpo_config import DPOConfig
    from trl.trainer.dpo_trainer import DPOTrainer
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    watch = Watch()
    on_gpu = "device" in SETTINGS
    more: dict[str, Any] = {"dtype": "bfloat16"} if on_gpu else {}
    network: Any = AutoModelForCausalLM.from_pretrained(model, **more)
    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    arguments = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    names = ("completion",) if kind == "sft" else ("chosen", "rejected")
    rows = [
        {"prompt": [{"role": "user", "content": value["prompt"]}]}
        | {name: [{"role": "assistant", "content": value[name]}] for name in names}
        for value in arguments
    ]
    shared: dict[str, Any] = {
        "output_dir": str(folder / "trl"), "per_device_train_batch_size": SETTINGS["batch_size"],
        "learning_rate": SETTINGS["learning_rate"], "max_length": SETTINGS["max_length"], "num_train_epochs": 1,
        "seed": SETTINGS["seed"], "activation_checkpointing": False, "bf16": False, "use_cpu": not on_gpu,
        "save_strategy": "no", "report_to": "none", "disable_tqdm": True, "logging_steps": 1,
    }  # fmt: skip
    kinds: dict[str, tuple[Any, Any]] = {"sft": (SFTTrainer, SFTConfig), "dpo": (DPOTrainer, DPOConfig)}
    trainer, config = kinds[kind]
    built = trainer(
        model=network, args=config(**shared), train_dataset=Dataset.from_list(rows), processing_class=tokenizer
    )
    return watch.steps(built)


def _ours(kind: str, path: Path, model: Path, folder: Path) -> Run:
    from testing.fixtures.tiny_training import training_job
    from training.jobs import saved_steps
    from training.jobs.finetuning import dpo, sft

    more: dict[str, Any] = {"validation_share": 0.0} if kind == "dpo" else {}
    job = training_job(folder / kind, "sft" if kind == "sft" else "dpo", model, path, **SETTINGS, **more)
    results: list[Run] = []
    watch = Watch()

    def time_run(trainer: Any, _: Path) -> None:
        results.append(watch.steps(trainer))

    assert saved_steps.train is sft.train is dpo.train
    sft.train = dpo.train = time_run
    (sft.sft if kind == "sft" else dpo.dpo)(job)
    return results[0]


def runs_of(kind: str, model: Path, steps: int, repeats: int, threads: int, device: str) -> dict[str, list[Run]]:
    """Run both programs in turns, each time in a fresh process and folder."""
    results: dict[str, list[Run]] = {"trl": [], "peergate": []}
    for _ in range(repeats):
        for who, runs in results.items():
            with tempfile.TemporaryDirectory() as name:
                path = data(kind, Path(name), steps * SETTINGS["batch_size"])
                command = [sys.executable, "-m", "bench.train", "--threads", str(threads), "--device", device]
                command += ["--run", kind, who, str(path), str(model), name]
                done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{kind} of {who} ended with {done.returncode}: {done.stderr[-2000:]}")
            runs.append(json.loads(done.stdout.splitlines()[-1]))
    return results


def print_comparison(kind: str, results: dict[str, list[Run]], parameters: int, rate: float) -> bool:
    """Print the medians of a kind, their ratios, and return whether the limits hold."""
    ours, theirs = results["peergate"], results["trl"]
    for who, runs in results.items():
        speed = [_middle(runs, lambda value, way=way: value["tokens"] / value[way]) for way in TIMES]
        print(f"{kind} {who}: {speed[0]:,.0f} tokens/s in the steps, {speed[1]:,.0f} in the job; in the steps "
              f"{6 * parameters * speed[0] / rate:.1%} of the matrix rate; "
              f"{_middle(runs, lambda value: value['peak_bytes']) / 1e6:,.0f} MB at the peak, "
              f"{_middle(runs, lambda value: value['grown_bytes']) / 1e6:,.0f} MB of it "
              f"since the libraries were loaded; "
              f"{_middle(runs, lambda value: value['steps_cpu']):.2f} s of CPU in the steps, "
              f"{_middle(runs, lambda value: value['job_cpu']):.2f} s in the job", flush=True)  # fmt: skip
    tokens = {mine["tokens"] for mine in (*ours, *theirs)}
    print(f"{kind}: {' and '.join(f'{token:,.0f}' for token in sorted(tokens))} tokens in each run")
    flag = len(tokens) == 1
    for way in TIMES:
        ratio = _middle(theirs, lambda value, way=way: value[way]) / _middle(ours, lambda value, way=way: value[way])
        what = f"{kind}: tokens a second by {way}, ours / TRL's"
        flag = _holds(what, ratio, ">=", 1.0 - _noise(theirs, way)) and flag
    for memory in ("peak_bytes", "grown_bytes"):
        ratio = _middle(ours, lambda value, memory=memory: value[memory]) / median(its[memory] for its in theirs)
        flag = _holds(f"{kind}: {memory}, ours / TRL's", ratio, "<=", 1.0 + _noise(theirs, memory)) and flag
    return flag


def _noise(runs: list[Run], what: str) -> float:
    """Return the range of the runs of one program, as a share of their median."""
    values = [value[what] for value in runs]
    return (max(values) - min(values)) / median(values)


TIMES = ("steps_seconds", "job_seconds", "steps_cpu", "job_cpu")


def _middle(runs: list[Run], what: Callable[[Run], float]) -> float:
    return median(what(value) for value in runs)


def _holds(what: str, ratio: float, sign: str, limit: float) -> bool:
    holds = ratio >= limit if sign == ">=" else ratio <= limit
    print(f"{what} = {ratio:.3f} (limit {sign} {limit:.3f}) {'holds' if holds else 'DOES NOT HOLD'}", flush=True)
    return holds


def main() -> int:
    """Run both kinds with both programs, print ratios and whether they hold."""
    parser = argparse.ArgumentParser(prog="python -m bench.train", description=__doc__)
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--real", action="store_true", help="SmolLM2-135M instead of a random model")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--kinds", nargs="+", default=["sft", "dpo"], choices=["sft", "dpo"])
    parser.add_argument("--run", nargs=5, metavar=("KIND", "WHO", "DATA", "MODEL", "FOLDER"), help=argparse.SUPPRESS)
    namespace = parser.parse_args()
    if namespace.run:
        kind, who, *paths = namespace.run
        data_path, model, folder = (Path(path) for path in paths)
        print(json.dumps(train_once(kind, who, data_path, model, folder, namespace.threads, namespace.device)))
        return 0
    import torch

    from testing.fixtures.real_model import smollm2_checkpoint
    from testing.fixtures.tiny_training import tiny_checkpoint
    from training.planning.model_shapes import from_config

    current = True
    with tempfile.TemporaryDirectory() as name:
        model = smollm2_checkpoint() if namespace.real else Path(name) / "model"
        if not namespace.real:
            tiny_checkpoint(model, hidden=namespace.hidden, layers=namespace.layers)
        shape = from_config(model / "config.json")
        assert shape is not None
        torch.set_num_threads(namespace.threads)
        rate = matrix_rate()
        print(f"{shape.parameters():,} parameters, {namespace.steps} steps, {namespace.repeats} runs of each in turns, "
              f"{namespace.threads} threads; matrix rate {rate / 1e9:.1f} GFLOP/s in float32", flush=True)  # fmt: skip
        for kind in namespace.kinds:
            results = runs_of(kind, model, namespace.steps, namespace.repeats, namespace.threads, namespace.device)
            current = print_comparison(kind, results, shape.parameters(), rate) and current
    return 0 if current else 1


if __name__ == "__main__":
    raise SystemExit(main())
