"""How far apart are training steps and the same steps trained again, and which flaws does that show? All in one run.

    .venv/bin/python -m bench.witness_training                      # SmolLM2, float32, some minutes on two quiet cores
    .venv/bin/python -m bench.witness_training --model tiny --precision bfloat16
    .venv/bin/python -m bench.witness_training --device cuda --precision bfloat16 --steps 24 --rate 2e-5

A training of a few steps, full and with adapters, leaves a snapshot; a witness trains the opening and what follows the
snapshot again. On a CPU with one thread, with two, and with the instructions that every x86 processor has: its sums are
those of another machine. On a GPU in the same process, in another, and with other kernels (attention by plain products,
sums of 16 bits not reduced in 16 bits), as another card may have. Printed are the largest distances of loss, gradient
norm and movement of the weights, as shares, with their tolerances (``specs/stages/base/witness.py``), how many honest
steps would fail, and how many do of each of these: losses a hundredth lower, another learning rate, other completions,
weights saved before the last step or after the first. The peer of the cost is the whole training. Exit code 1 if an
honest step fails.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

from reviews.stages.finetuning.replay_checks import differs, distances, same_weights
from specs.jobs.job_records import LEFT, Artifact, Challenge, Segment
from specs.stages.base.witness import REPLAYED, ROWS
from specs.stages.finetuning.rows import ReplayedStep, TrainingRow
from specs.stages.registry import outputs_of
from specs.system.digests import digest_bytes
from testing.fixtures.real_model import smollm2_checkpoint
from testing.fixtures.tiny_training import opposites, tiny_checkpoint, training_job, write_lines
from training.jobs.job import Job

WAYS = {"cpu": ("other instructions", "1 thread", "2 threads"), "cuda": ("same process", "a process", "other kernels")}
"""By device: where a witness trains again. The last has what the flaws are held against."""
ADAPTERS: dict[str, Any] = {
    "method": "lora",
    "lora_rank": 8,
    "lora_alpha": 16,
    "lora_dropout": 0.05,
    "target_modules": ["q_proj", "v_proj"],
}


def main() -> int:
    """Train, train again and print what was found; 1 if an honest step fails."""
    parser = argparse.ArgumentParser(description="Training steps and the same steps trained again.")
    parser.add_argument("--model", choices=("smollm2", "tiny"), default="smollm2")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--steps", type=int, default=6, help="of the training; a snapshot is left after two thirds")
    parser.add_argument("--rate", type=float, default=2e-4, help="the learning rate")
    namespace = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="peergate-witness-") as name:
        folder = Path(name)
        model = tiny_checkpoint(folder / "model") if namespace.model == "tiny" else smollm2_checkpoint()
        for method, parameters in {"full": {}, "adapters": ADAPTERS}.items():
            parameters = parameters | {"precision": namespace.precision, "device": namespace.device}
            parameters |= {"learning_rate": namespace.rate, "snapshot_steps": namespace.steps * 2 // 3}
            failed += _method(folder / method, model, method, parameters, namespace.steps)
    return 1 if failed else 0


def _method(folder: Path, model: Path, method: str, parameters: dict[str, Any], steps: int) -> int:
    import torch

    most = REPLAYED[parameters["precision"]]
    data = write_lines(folder / "data.jsonl", opposites(4 * steps))
    job = _job(folder / "job", model, data, parameters)
    began = time.perf_counter()
    _train(job)
    trained_s = time.perf_counter() - began
    rows = _lines(job, "rows", TrainingRow)
    failed = 0
    threads = torch.get_num_threads()
    again, facts = list[ReplayedStep](), dict[str, Any]()
    for number, where in enumerate(WAYS[parameters["device"]]):
        began, place = time.perf_counter(), folder / f"again{number}"
        if where in ("other instructions", "other kernels", "a process"):
            again, facts = _elsewhere(job, place, where)
        else:
            if where.endswith(("thread", "threads")):
                torch.set_num_threads(int(where[0]))
            again, facts = _again(job, place)
        ratio = (time.perf_counter() - began) / trained_s
        wrong = [
            why
            for step in again
            if (why := differs(rows, step, most, begins=step.step == parameters["snapshot_steps"] + 1))
        ]
        wrong += [] if same_weights(rows[-1].sketch, facts["saved"]) else ["the saved weights are others"]
        failed += len(wrong)
        loss, gradient, update = (max(far) for far in zip(*(distances(rows, step) for step in again), strict=True))
        print(
            f"{method}, {where}: loss {loss:.1e} of {most.loss:g}, gradient {gradient:.1e} of {most.gradient:g}"
            f", movement {update:.1e} of {most.update:g}; {len(wrong)} of {len(again)} honest steps fail "
            f"{'; '.join(wrong[:1])}; {len(again)} of {len(rows)} steps in {ratio:.2f} x the time of all"
        )
    torch.set_num_threads(threads)
    lower = [row.model_copy(update={"loss": 0.99 * row.loss}) for row in rows]
    print(
        f"{method}, losses a hundredth lower: {sum(bool(differs(lower, step, most)) for step in again)} of {len(again)}"
    )
    for at, what in ((-2, "before the last step"), (0, "after the first")):
        result = "not found" if same_weights(rows[at].sketch, facts["saved"]) else "found"
        print(f"{method}, weights saved {what}: {result}")
    for what, change in {
        "half the learning rate": {"learning_rate": parameters["learning_rate"] / 2},
        "other completions": {},
    }.items():
        other = _job(folder / what, model, data if change else _other(data), parameters | change)
        _train(other)
        # A liar states the granted rate.
        lied = [
            row.model_copy(update={"learning_rate": own.learning_rate})
            for row, own in zip(_lines(other, "rows", TrainingRow), rows, strict=True)
        ]
        print(f"{method}, {what}: {sum(bool(differs(lied, step, most)) for step in again)} of {len(again)} steps")
    return failed


def _job(folder: Path, model: Path, data: Path, parameters: dict[str, Any]) -> Job[Any]:
    granted: dict[str, Any] = {"batch_size": 4, "max_length": 64}
    return training_job(folder, "sft", model, data, **granted | parameters)


def _train(job: Job[Any]) -> None:
    import torch

    from training.jobs.finetuning.sft import sft

    torch.manual_seed(job.parameters.seed)
    sft(job)


def _again(job: Job[Any], place: Path) -> tuple[list[ReplayedStep], dict[str, Any]]:
    """Have a witness train the opening and what follows the snapshot; return its rows and facts."""
    from training.jobs.finetuning.replay import replay

    after = job.parameters.snapshot_steps
    steps = len((job.out / "rows.jsonl").read_bytes().splitlines())
    parts = (Segment(after=0, until=2), Segment(after=after, until=steps))
    artifacts: dict[str, Artifact] = {}
    for name in outputs_of(job.order.kind, job.parameters):
        path = job.out / name if (job.out / name).is_dir() else job.out / f"{name}.jsonl"
        artifacts[LEFT + name] = Artifact(name=name, path=str(path), digest=digest_bytes(b""), bytes=0)
    rows = tuple(step for segment in parts for step in range(segment.after, segment.until))
    challenge = Challenge(ended=digest_bytes(b"end"), of=steps, rows=rows, segments=parts)
    (place / "out").mkdir(parents=True)
    witness = Job(place, job.order.model_copy(update={"inputs": job.order.inputs | artifacts, "challenge": challenge}))
    facts = replay(witness).facts
    return _lines(witness, ROWS, ReplayedStep), facts


PLAIN = {"ATEN_CPU_CAPABILITY": "default", "DNNL_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"}
"""What makes torch, oneDNN and MKL compute with SSE alone; each is read when its library is loaded."""


def _elsewhere(job: Job[Any], place: Path, where: str) -> tuple[list[ReplayedStep], dict[str, Any]]:
    """Have a witness do it in a separate process, which may compute with other instructions or kernels."""
    plain = PLAIN if where == "other instructions" else {}
    begin = _other_kernels if where == "other kernels" else None
    with (
        mock.patch.dict(os.environ, plain),
        ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=begin) as pool,
    ):
        return pool.submit(_again, job, place).result()


def _other_kernels() -> None:
    """Have torch take sums on a GPU in another order: attention by plain products, no partial sums of 16 bits."""
    import torch

    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def _lines(job: Job[Any], name: str, form: Any) -> list[Any]:
    return [form.model_validate_json(line) for line in (job.out / f"{name}.jsonl").read_bytes().splitlines()]


def _other(data: Path) -> Path:
    """Write the same examples with other completions, as many characters long."""
    rows = [json.loads(line) for line in data.read_text(encoding="utf-8").splitlines()]
    other = data.with_name("other.jsonl")
    return write_lines(other, [row | {"completion": row["completion"][::-1]} for row in rows])


if __name__ == "__main__":
    raise SystemExit(main())
