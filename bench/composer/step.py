"""Memory and time of self-distillation compared with TRL's, and of a trainer without weights compared with GRPOTrainer.

    .venv/bin/python -m bench.composer.step                                  # a random model, 8,192 tokens
    .venv/bin/python -m bench.composer.step --vocabulary 151936 --rows 1     # that of a large model
    .venv/bin/python -m bench.composer.step --real --prompt 32 --threads 1   # SmolLM2-135M
    .venv/bin/python -m bench.composer.step --real --prompt 32 --threads 1 --adapters --without-trainers
    .venv/bin/python -m bench.composer.step --device cuda

Each run is a separate process, and the programs take turns; five runs each by default. ``--runs FILE`` keeps them, so
that the same command continues where it was cut off. Seconds are those of the processor, on a GPU those of the clock.
``body`` passes the model and comes back without its last layer: what a loss needs beyond that is its own. ``pieces`` is
what a ``composer`` stage does, ``plain`` holds whole logits, ``trl`` is the function of TRL's SDPOTrainer for whole
vocabularies on the same logits. ``none`` and ``grpo`` are seven steps of a trainer with the weights 1, 0, 0 and of
TRL's own.

Limits: memory of ``pieces`` / ``body`` <= 1.05, seconds of ``pieces`` / ``trl`` <= 1.15, seconds of ``none`` / ``grpo``
<= 1.03. A ratio is the median of paired runs, with the interval between two of them that covers the median with a
probability of at least 93 %: of five pairs the smallest and the largest, of nine the second of each end. Nothing is
concluded where the interval covers the limit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

BETA, HINT = 0.5, 32
"""The weight of the divergence, and the additional tokens that the teacher reads."""
COVERS = 0.93
"""What an interval covers the median with."""
LOSSES = ("body", "pieces", "plain", "trl")
TRAINERS = ("none", "grpo")
Run = dict[str, float]


def status(name: str) -> int:
    """Return a line of the process's own status, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def _now(device: str) -> float:
    """Return seconds: others share a processor, and what it did for them is not this program's."""
    return time.perf_counter() if device == "cuda" else time.process_time()


def one_loss(which: str, model: Any, namespace: argparse.Namespace) -> Run:
    """Pass a batch once for warming up and once for the record; return its seconds, memory, loss and gradient."""
    import torch

    from training.jobs.finetuning.online.hidden_states import TokenSequence, states

    # What an import takes is not a cost of a loss.
    import_module("trl.experimental.sdpo.loss_utils")
    generator, device = torch.Generator().manual_seed(0), namespace.device
    vocabulary, prompt = model.config.vocab_size, namespace.prompt or namespace.tokens
    ids = torch.randint(3, vocabulary, (namespace.rows, HINT + prompt + namespace.tokens), generator=generator).tolist()
    ours = [TokenSequence(value[HINT:], prompt) for value in ids]
    theirs = [TokenSequence(value, HINT + prompt) for value in ids]
    result: Run = {}
    for turn in range(2):
        model.zero_grad()
        if turn:
            _reset_peak(device)
        begin = _now(device)
        with torch.no_grad():
            taught = states(model, theirs)
        loss = _loss_of(which, model, states(model, ours), taught)
        loss.backward()
        if device == "cuda":
            torch.cuda.synchronize()
        grown = torch.cuda.max_memory_allocated() if device == "cuda" else status("VmHWM")
        squares = sum(
            float(parameter.grad.square().sum()) for parameter in model.parameters() if parameter.grad is not None
        )
        took = _now(device) - begin
        result = {"seconds": took, "peak_bytes": float(grown), "loss": float(loss), "gradient": squares**0.5}
    return result


def _loss_of(which: str, model: Any, ours: Any, theirs: Any) -> Any:
    import torch

    from training.jobs.finetuning.online import losses
    from training.jobs.finetuning.online.hidden_states import head

    layer, mask = head(model), torch.ones(len(ours), device=ours.device)
    if which == "body":
        return (ours * theirs).mean()
    if which == "pieces":
        return losses.divergence_in_pieces(ours, layer, theirs, layer, mask, beta=BETA)
    with torch.no_grad():
        taught = layer(theirs)
    if which == "plain":
        return losses.divergence(layer(ours), taught, mask, beta=BETA)
    from trl.experimental.sdpo.loss_utils import compute_full_logit_self_distillation_loss

    # TRL names the weight of the teacher in the mixture by what it leaves the student.
    return compute_full_logit_self_distillation_loss(layer(ours), taught, distillation_alpha=1 - BETA).mean()


def _reset_peak(device: str) -> None:
    """Have the peak begin where memory is now; on a CPU through the kernel's own switch."""
    import gc

    gc.collect()
    if device == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def one_trainer(which: str, folder: Path, device: str) -> Run:
    """Train seven steps; return the seconds of the last six."""
    import torch
    from datasets import Dataset
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    from testing.fixtures.rollout_jobs import prompt_rows
    from training.engines.checkpoint import load
    from training.jobs.finetuning.online.channels import ChannelPlan, make_channel_trainer

    torch.manual_seed(0)
    model, tokenizer = load(folder)
    times: list[float] = []

    def reward(completions: Any, **_: Any) -> Any:
        return [float(len(completion[0]["content"]) % 3) for completion in completions]

    base: Any = make_channel_trainer(GRPOTrainer, ChannelPlan()) if which == "none" else GRPOTrainer

    class StepTime(base):
        def training_step(self, *arguments: Any, **more: Any) -> Any:
            begin = _now(device)
            result = super().training_step(*arguments, **more)
            if device == "cuda":
                torch.cuda.synchronize()
            times.append(_now(device) - begin)
            return result

    with tempfile.TemporaryDirectory() as out:
        config = GRPOConfig(
            output_dir=out, num_generations=4, per_device_train_batch_size=4, max_completion_length=16,
            learning_rate=1e-5, max_steps=7, report_to="none", use_cpu=device == "cpu", save_strategy="no", beta=0.04,
            seed=5, disable_tqdm=True, activation_checkpointing=False, bf16=False,
        )  # fmt: skip
        rows = [{"prompt": [{"role": "user", "content": prompt_row["prompt"]}]} for prompt_row in prompt_rows()]
        trainer = StepTime(
            model=model.train(), reward_funcs=reward, args=config, train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
        )  # fmt: skip
        trainer.train()
    return {"seconds": sum(times[1:]), "peak_bytes": float(status("VmHWM"))}


def run_here(which: str, folder: Path, namespace: argparse.Namespace) -> Run:
    """Carry out one run in this process."""
    import torch

    from training.engines.checkpoint import load

    torch.set_num_threads(namespace.threads)
    if which in TRAINERS:
        return one_trainer(which, folder, namespace.device)
    model, _ = load(folder)
    # Mapped from their file they take no memory before they are read, and ``body`` never reads all of the last layer.
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    # Adapters begin with random numbers.
    torch.manual_seed(0)
    if namespace.adapters:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(target_modules="all-linear"))
    return one_loss(which, model.to(namespace.device).train(), namespace)


def runs_of(names: tuple[str, ...], folder: Path, namespace: argparse.Namespace) -> dict[str, list[Run]]:
    """Run the programs in turns, each time in a fresh process; what ``--runs`` has is not run again."""
    remaining: dict[str, Run] = {}
    if namespace.runs and namespace.runs.exists():
        for line in namespace.runs.read_text(encoding="utf-8").splitlines():
            remaining.update(json.loads(line))
    for number in range(namespace.repeats):
        # In turns, and every other time the other way round: what a machine does by and by favours none.
        for name in names if number % 2 == 0 else names[::-1]:
            if (key := f"{name}.{number}") not in remaining:
                remaining[key] = _run(name, folder, namespace)
                if namespace.runs:
                    with namespace.runs.open("a", encoding="utf-8") as file:
                        file.write(json.dumps({key: remaining[key]}) + "\n")
    return {name: [remaining[f"{name}.{number}"] for number in range(namespace.repeats)] for name in names}


def _run(name: str, folder: Path, namespace: argparse.Namespace) -> Run:
    command = [sys.executable, "-m", "bench.composer.step", "--run", name, str(folder), "--device", namespace.device]
    for shared in ("rows", "tokens", "prompt", "threads"):
        command += [f"--{shared}", str(getattr(namespace, shared))]
    if namespace.adapters:
        command.append("--adapters")
    # Memory that is given back at once: else its peak is also what the allocator had kept, another amount each time.
    steady = os.environ | {"MALLOC_MMAP_THRESHOLD_": "1000000"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=steady)
    if done.returncode:
        raise SystemExit(f"{name} ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def compare_steps(
    what: str, runs: dict[str, list[Run]], ours: str, theirs: str, of: str, limit: float
) -> dict[str, Any]:
    """Return the ratio of paired runs with its interval, and what it says of the limit."""
    pairs = [value[of] / other[of] for value, other in zip(runs[ours], runs[theirs], strict=True)]
    low, high = median_interval(pairs)
    statement = "holds" if high <= limit else "DOES NOT HOLD" if low > limit else "not concluded"
    if len(pairs) < 5:
        statement = "too few pairs"
    about = {"what": what, "of": f"{ours} / {theirs}", "ratio": median(pairs), "interval": [low, high]}
    return about | {"limit": limit, "said": statement}


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the interval between two of the values that covers the median; of fewer than five, all of them."""
    from scipy.stats import quantile_test

    if len(values) < 5:
        return min(values), max(values)
    low, high = quantile_test(values, p=0.5).confidence_interval(COVERS)
    return float(low), float(high)


def table(results: dict[str, Any]) -> list[str]:
    """Return the lines of the table that pages quote."""
    lines = ["| | | median ratio | interval | limit | |", "|---|---|---|---|---|---|"]
    for ratio in results["ratios"]:
        low, high = ratio["interval"]
        numbers = f"{ratio['ratio']:.3f} | {low:.3f} to {high:.3f} | {ratio['limit']:g}"
        lines.append(f"| {ratio['what']} | {ratio['of']} | {numbers} | {ratio['said']} |")
    return lines


def main() -> int:
    """Print every ratio; with ``--out`` write them with all runs. Returns 1 where a limit does not hold."""
    parser = argparse.ArgumentParser(prog="python -m bench.composer.step", description=__doc__)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=256, help="of an answer")
    parser.add_argument("--prompt", type=int, default=0, help="tokens of a prompt; 0: as many as of an answer")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--real", action="store_true", help="SmolLM2-135M instead of a random model")
    parser.add_argument("--adapters", action="store_true", help="train adapters: the last layer has no gradient")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--without-trainers", action="store_true")
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    parser.add_argument("--runs", type=Path, help="a file that keeps each run")
    parser.add_argument("--run", nargs=2, metavar=("NAME", "MODEL"), help=argparse.SUPPRESS)
    namespace = parser.parse_args()
    if namespace.run:
        print(json.dumps(run_here(namespace.run[0], Path(namespace.run[1]), namespace)))
        return 0
    from testing.fixtures.real_model import smollm2_checkpoint
    from testing.fixtures.tiny_training import tiny_checkpoint

    with tempfile.TemporaryDirectory() as name:
        sizes = {"hidden": namespace.hidden, "layers": namespace.layers}
        small, wide = Path(name) / "tiny", Path(name) / "wide"
        if not namespace.real:
            tiny_checkpoint(small, **sizes)
            tiny_checkpoint(wide, **sizes, vocabulary=namespace.vocabulary)
        model = smollm2_checkpoint() if namespace.real else wide
        runs = runs_of(LOSSES, model, namespace)
        if not namespace.without_trainers:
            runs |= runs_of(TRAINERS, model if namespace.real else small, namespace)
    for which, result in runs.items():
        middle = {key: median(value[key] for value in result) for key in result[0]}
        print(f"{which}: " + ", ".join(f"{key} {value:.6g}" for key, value in middle.items()), flush=True)
    parts = [
        compare_steps("memory over the body's", runs, "pieces", "body", "peak_bytes", 1.05),
        compare_steps("memory of whole logits over the body's", runs, "plain", "body", "peak_bytes", 1.05),
        compare_steps("memory of TRL's loss over the body's", runs, "trl", "body", "peak_bytes", 1.05),
        compare_steps("time compared with TRL's loss", runs, "pieces", "trl", "seconds", 1.15),
        compare_steps("the same loss as TRL's", runs, "pieces", "trl", "loss", 1.0001),
    ]
    if not namespace.without_trainers:
        parts.append(compare_steps("time of a trainer without weights", runs, "none", "grpo", "seconds", 1.03))
    settings = {key: value for key, value in vars(namespace).items() if key not in ("run", "runs", "out")}
    results = {"settings": settings, "ratios": parts, "runs": runs}
    print("\n".join(table(results)))
    if namespace.out:
        namespace.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    # The two that hold whole logits are there to be compared with.
    return int(any(part["said"] == "DOES NOT HOLD" for place, part in enumerate(parts) if place not in (1, 2)))


if __name__ == "__main__":
    raise SystemExit(main())
