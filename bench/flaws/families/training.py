"""Training that was not as granted, and weights that it did not make."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from bench.flaws.families.rows import read_lines, shaken_model
from bench.flaws.lying import other_parameters, shake
from bench.flaws.operator import Operator, Row
from testing.fixtures.tiny_training import write_lines
from training.jobs.job import Job
from training.rules.tasks import load_items, reference

CURVE = ("witness.training", "training.loss", "training.steps", "training.objective")
WEIGHTS = ("witness.weights",)


def _curve(rows: list[Row], _: Path) -> None:
    for place, row in enumerate(rows):
        row |= {"loss": 3.0 * 0.9**place} if "loss" in row else {}


def _gradient(rows: list[Row], _: Path) -> None:
    for row in rows:
        row |= {"grad_norm": 1.0} if "grad_norm" in row else {}


def _shorter(rows: list[Row], _: Path) -> None:
    del rows[len(rows) // 2 :]


def _smooth_losses(rows: list[Row], _: Path) -> None:
    """Smooth the losses so that the curve looks stable."""
    losses = [row["loss"] for row in rows]
    for place, row in enumerate(rows):
        near = losses[max(0, place - 2) : place + 3]
        row["loss"] = sum(near) / len(near)


def _faster(job: Job) -> None:
    other_parameters(job, learning_rate=2 * job.parameters.learning_rate)


STOPS = ((
    "learning_rate: 2e-3, warmup_ratio: 0, epochs: 3, batch_size: 4",
    "learning_rate: 2e-3, warmup_ratio: 0, epochs: 3, batch_size: 4, validation_share: 0.3, "
    "early_stopping: {every_steps: 2, patience: 1, min_improvement: 5}",
),)  # fmt: skip
"""A rule that ends the training after its second reading: no loss falls by so much."""
STOP_CHECKS = ("training.stop", "training.steps", "training.validation", "witness.weights")


def _more_patience(job: Job) -> None:
    """Train to the last planned step whatever the registered rule says."""
    rule = job.parameters.early_stopping.model_copy(update={"patience": 99})
    job.parameters = job.parameters.model_copy(update={"early_stopping": rule})


def _better_readings(rows: list[Row], _: Path) -> None:
    """State readings by which the rule would have saved other weights."""
    last = max(row["step"] for row in rows)
    for row in rows:
        row["log_probability"] *= 0.1 if row["step"] == last else 1.0


def _granted_rates(rows: list[Row], _: Path) -> None:
    for row in rows:
        row["learning_rate"] /= 2


def _other_seed(job: Job) -> None:
    """Train with the seed that came out best in trials that no one saw."""
    other_parameters(job, seed=job.parameters.seed + 5)


def _heldout_examples(job: Job) -> None:
    """Train on the held-out prompts with right answers, as many as there are examples."""
    examples = read_lines(job.inputs["examples"])
    (path,) = job.run.parents[1].glob("heldout.jsonl")
    right = [(item.prompt, reference(job.order.task, item) or "") for item in load_items(path)]
    for place, row in enumerate(examples):
        prompt, answer = right[place % len(right)]
        row |= {"prompt": prompt, "completion": answer}
    job.inputs["examples"] = write_lines(job.folder / "others.jsonl", examples)


def _easy_examples(job: Job) -> None:
    """Train on half of the granted examples, each twice."""
    examples = read_lines(job.inputs["examples"])
    half = examples[: (len(examples) + 1) // 2]
    job.inputs["examples"] = write_lines(job.folder / "others.jsonl", [*half, *half][: len(examples)])


def _weights(job: Job) -> Path:
    return job.out / "checkpoint" / "model.safetensors"


def _base_saved(job: Job) -> None:
    shutil.copyfile(job.inputs["model"] / "model.safetensors", _weights(job))


def _mix_weights(job: Job, share: float) -> None:
    """Save so much of the way from the base to the trained weights; more than 1 goes beyond them."""
    from safetensors.torch import load_file, save_file

    base, made = load_file(job.inputs["model"] / "model.safetensors"), load_file(_weights(job))
    save_file({name: base[name] + share * (made[name] - base[name]) for name in made}, _weights(job),
              metadata={"format": "pt"})  # fmt: skip


def _round_losses(job: Job) -> None:
    """Save weights that were rounded to eight bits of mantissa."""
    import torch
    from safetensors.torch import load_file, save_file

    made: dict[str, Any] = load_file(_weights(job))
    rounded = {name: value.to(torch.bfloat16).to(value.dtype) for name, value in made.items()}
    save_file(rounded, _weights(job), metadata={"format": "pt"})


def _spread_noise(job: Job) -> None:
    shake(_weights(job), 0.02)


OPERATORS = (
    Operator("dead-rate", "curve", "a learning rate of 1e-9", ("training.moved", "training.loss"),
             spec=(("2e-3", "1e-9"),)),
    Operator("invented-curve", "curve", "the losses are invented", CURVE, stage="train", lie=_curve),
    Operator("invented-gradient", "curve", "every gradient norm is 1", CURVE, stage="train", lie=_gradient),
    Operator("half-curve", "curve", "half of the steps are left out", CURVE, stage="train", lie=_shorter),
    Operator("smoothed-curve", "curve", "the losses are smoothed", CURVE, stage="train", lie=_smooth_losses),
    Operator("twice-the-rate", "curve", "trained at twice the rate that its rows state", CURVE, stage="train",
             swap=_faster, lie=_granted_rates),
    Operator("best-seed", "curve", "trained with a seed that was chosen after a look", CURVE, stage="train",
             swap=_other_seed),
    Operator("trained-on-heldout", "curve", "trained on the held-out prompts with right answers",
             (*CURVE, "training.data"), stage="train", swap=_heldout_examples),
    Operator("half-the-data", "curve", "trained on half of the granted examples, twice", (*CURVE, "training.data"),
             stage="train", swap=_easy_examples),
    Operator("more-patience", "curve", "trained on beyond where the registered rule ends", STOP_CHECKS, stage="train",
             swap=_more_patience, spec=STOPS),
    Operator("better-readings", "curve", "readings of kept examples are invented, so that the last step looks best",
             STOP_CHECKS, stage="train", lie=_better_readings, output="validation", spec=STOPS),
    Operator("shaken-weights", "weights", "saved weights are not the trained ones", WEIGHTS, stage="train",
             weights=0.05),
    Operator("base-saved", "weights", "the untrained weights are saved", (*WEIGHTS, "training.moved"), stage="train",
             spoil=_base_saved),
    Operator("half-way", "weights", "weights half way between base and trained ones are saved", WEIGHTS,
             stage="train", spoil=lambda job: _mix_weights(job, 0.5)),
    Operator("rounded-weights", "weights", "rounded weights are saved", WEIGHTS, stage="train", spoil=_round_losses),
    Operator("wrong-base", "weights", "trained from other weights than those granted", (*WEIGHTS, *CURVE),
             stage="train", swap=shaken_model),
    Operator("adapter-not-merged", "weights", "the checkpoint is the base without its adapters",
             (*WEIGHTS, "training.moved"), session="lora", stage="train", spoil=_base_saved),
    Operator("adapter-scaled", "weights", "adapters are merged at one and a half of their scale", WEIGHTS,
             session="lora", stage="train", spoil=lambda job: _mix_weights(job, 1.5)),
    Operator("shaken-after-dpo", "weights", "weights saved after training on pairs are not those trained", WEIGHTS,
             session="dpo", stage="train", spoil=_spread_noise),
)  # fmt: skip
