"""Compare the plan of training on a GPU with what real stages allocate: `python -m bench.planned_gpu`.

Each case is a process of its own: the trainer of `sft` or `dpo`, as a stage builds it, takes a few steps on sequences
of exactly the granted length with random weights of a published shape. Printed are what the plan says, the most that
torch had reserved at a time and the CUDA context, as the driver counts it, and their ratio; tokens a second in the
steps after the first, and the operations that they come to. A plan below the measured figure misses, and so does one
more than 1.5 times as large.

    .venv/bin/python -m bench.planned_gpu --shapes 0.135B 1B      # the smaller ones
    .venv/bin/python -m bench.planned_gpu --only qlora --together 4
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.random_models import SHAPES, words
from specs.stages.finetuning.parameters import DpoParameters, SftParameters
from training.planning.training_memory import CONTEXT, GB, memory, operations_a_token

MOST = 1.5
STEPS = 4
MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
LORA: dict[str, Any] = {
    "method": "lora", "lora_rank": 16, "lora_alpha": 32, "lora_dropout": 0.05, "target_modules": MODULES,
}  # fmt: skip
METHODS: dict[str, dict[str, Any]] = {
    "full": {"precision": "bfloat16"},
    "full32": {"precision": "float32"},
    "mixed": {"precision": "mixed"},
    "lora": LORA | {"precision": "bfloat16"},
    "lora32": LORA | {"precision": "float32"},
    "qlora": LORA | {"method": "qlora", "precision": "bfloat16", "optimizer_kind": "paged_adamw_8bit"},
}
CASES = (
    # Shape, method, sequences at a time, tokens of each, gradient checkpointing, kind.
    *(("0.135B", method, 8, 1024, False, "sft") for method in METHODS),
    ("0.135B", "full", 8, 512, False, "dpo"),
    ("0.135B", "lora", 8, 512, False, "dpo"),
    *(("1B", method, 4, 1024, False, "sft") for method in METHODS),
    ("1B", "full", 2, 4096, True, "sft"),
    ("1B", "qlora", 2, 4096, True, "sft"),
    ("1B", "full", 4, 512, False, "dpo"),
    ("3B", "full", 2, 2048, True, "sft"),
    ("3B", "lora", 2, 2048, False, "sft"),
    ("3B", "lora", 4, 2048, True, "sft"),
    ("3B", "qlora", 2, 2048, True, "sft"),
    ("8B", "lora", 2, 2048, True, "sft"),
    ("8B", "qlora", 2, 2048, True, "sft"),
    ("8B", "qlora", 1, 512, False, "sft"),
    ("8B", "full", 1, 2048, True, "sft"),
)
Case = tuple[str, str, int, int, bool, str]


def granted(case: Case) -> SftParameters | DpoParameters:
    """Return the parameters of a case."""
    _, method, batch, length, again, kind = case
    arguments = METHODS[method] | {"batch_size": batch, "max_length": length, "gradient_checkpointing": again}
    arguments |= {"device": "cuda", "prompt_format": "{prompt}", "response_start": " ", "learning_rate": 1e-5}
    if kind == "dpo":
        return DpoParameters.model_validate(arguments | {"validation_share": 0.0})
    return SftParameters.model_validate(arguments)


def one(case: Case, models: Path, folder: Path) -> dict[str, Any]:
    """Train a few steps in this process and return what they took."""
    import torch

    from tests.fixtures.tiny_training import training_job, write_lines
    from training.jobs.finetuning import dpo, preference_trainers, sft
    from training.jobs.finetuning.loss_masks import MaskProof, expected
    from training.jobs.saved_steps import train

    name, _, batch, length, _, kind = case
    shape, parameters = SHAPES[name], granted(case)
    share = length // 4
    rows: list[dict[str, Any]] = []
    for number in range(STEPS * batch):
        # With the end token each sequence has exactly the granted length.
        prompt = words(share, shape.vocabulary, number)
        answers = [words(length - share - 1, shape.vocabulary, (number + 1) * 1000 + side) for side in range(2)]
        row = {"prompt": prompt, "group": f"g{number}"}
        if kind == "dpo":
            rows.append(row | {"chosen": answers[0], "rejected": answers[1], "source": "given"})
        else:
            rows.append(row | {"item": f"i{number}", "kind": "words", "sample": 0, "completion": answers[0]})
    data = write_lines(folder / "data.jsonl", rows)
    arguments = parameters.model_dump(exclude_defaults=True)
    job = training_job(folder / "job", kind, models / name, data, **arguments)  # pyright: ignore[reportArgumentType]
    torch.manual_seed(0)
    torch.cuda.init()
    if kind == "sft":
        trainer: Any = sft.build(job).trainer
    else:
        stored_data = dpo.data_of(job)
        proof = MaskProof(expected(stored_data.prepared.tokenizer, stored_data.training))
        trainer = preference_trainers.build(job, stored_data.prepared, stored_data.training, proof)
    train(trainer, job.folder / "trainer")
    sides = 2 if kind == "dpo" else 1
    seconds = sorted(trainer.step_seconds[1:])[len(trainer.step_seconds[1:]) // 2]
    rate = sides * batch * length / seconds
    plan = memory(shape, parameters, gpu=True)
    return {
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "planned": plan.total(),
        "parts": {part: round(value / GB, 3) for part, value in plan._asdict().items()},
        "tokens_a_second": rate,
        "operations_a_second": rate * operations_a_token(shape, parameters),
        "card": torch.cuda.get_device_name(0),
        "step_seconds": trainer.step_seconds,
    }


def context_bytes() -> int:
    """Return what the driver counts for a process that has multiplied two matrices, without what torch reserved."""
    code = (
        "import torch; free, whole = torch.cuda.mem_get_info(); a = torch.ones(64, 64, device='cuda'); (a @ a).sum();"
        "torch.cuda.synchronize(); print(whole - torch.cuda.mem_get_info()[0] - torch.cuda.memory_reserved())"
    )
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def main() -> int:
    """Run the cases, some of them together as far as their plans fit; 1 if a plan is too low or too high."""
    parser = argparse.ArgumentParser(description="Planned and measured memory of training on a GPU.")
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--only", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--together", type=int, default=1, help="cases at a time: memory is right, speed is not")
    parser.add_argument("--models", type=Path, help="keep the random models here")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    namespace = parser.parse_args()
    if namespace.run:
        print(json.dumps(one(tuple(json.loads(namespace.run)), namespace.models, namespace.folder)))
        return 0
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("torch finds no NVIDIA GPU on this machine")
    context = context_bytes()
    print(f"{torch.cuda.get_device_name(0)}; the context takes {context / GB:.2f} GB, {CONTEXT / GB:g} are planned")
    cases = [case for case in CASES if case[0] in namespace.shapes and case[1] in namespace.only]
    with tempfile.TemporaryDirectory() as name:
        models = namespace.models or Path(name) / "models"
        models.mkdir(parents=True, exist_ok=True)
        made = [
            subprocess.Popen([sys.executable, "-c", _MAKE, str(models / shape), shape])
            for shape in dict.fromkeys(case[0] for case in cases)
        ]
        if any(process.wait() for process in made):
            raise SystemExit("a random model could not be written")
        return _all(cases, models, Path(name), namespace.together, context)


_MAKE = (
    "import sys, pathlib; from bench.random_models import SHAPES, random_checkpoint;"
    "random_checkpoint(pathlib.Path(sys.argv[1]), SHAPES[sys.argv[2]])"
)


def _all(cases: list[Case], models: Path, scratch: Path, most: int, context: int) -> int:
    import torch

    room, waiting, bad = 0.95 * torch.cuda.get_device_properties(0).total_memory, list(cases), 0
    running: list[tuple[Case, float, subprocess.Popen[str]]] = []
    while waiting or running:
        for entry in [entry for entry in running if entry[2].poll() is not None]:
            running.remove(entry)
            bad += _told(entry[0], entry[2], context)
        used = sum(planned for _, planned, _ in running)
        for case in list(waiting):
            planned = memory(SHAPES[case[0]], granted(case), gpu=True).total()
            if len(running) < most and (not running or used + 1.2 * planned < room):
                folder = scratch / f"case{len(waiting)}"
                folder.mkdir()
                command = [sys.executable, "-m", "bench.planned_gpu", "--models", str(models), "--folder", str(folder)]
                pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
                running.append((case, 1.2 * planned, subprocess.Popen([*command, "--run", json.dumps(case)], **pipes)))
                used += 1.2 * planned
                waiting.remove(case)
        time.sleep(0.2)
    return int(bool(bad))


def _told(case: Case, process: subprocess.Popen[str], context: int) -> bool:
    """Print a line of a case that has ended; return whether its plan misses."""
    text, error = process.communicate()
    shape, method, batch, length, again, kind = case
    what = f"{shape} {kind} {method} {batch} x {length}{' checkpointing' if again else ''}"
    if process.returncode:
        print(f"{what}: ended with {process.returncode}: {error[-600:]}", flush=True)
        return True
    result = json.loads(text.splitlines()[-1])
    measured = result["reserved"] + context
    ratio = result["planned"] / measured
    print(
        f"{what}: planned {result['planned'] / GB:.2f} GB, measured {measured / GB:.2f} GB "
        f"({result['allocated'] / GB:.2f} allocated), planned / measured {ratio:.2f}; "
        f"{result['tokens_a_second']:,.0f} tokens/s, {result['operations_a_second'] / 1e12:.0f} TFLOP/s; "
        f"{json.dumps(result['parts'])} {'' if 1 <= ratio <= MOST else 'MISSES'}",
        flush=True,
    )
    return not 1 <= ratio <= MOST


if __name__ == "__main__":
    raise SystemExit(main())
