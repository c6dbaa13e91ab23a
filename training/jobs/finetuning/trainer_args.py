"""What every trainer is told, and what is left of its run: arguments, steps, facts."""

from __future__ import annotations

import math
from typing import Any

from specs.stages.finetuning.parameters import TrainingParameters
from training.jobs.finetuning.loss_masks import MaskProof
from training.jobs.finetuning.training_texts import Sides
from training.jobs.job import Job


def steps_of(examples: int, parameters: TrainingParameters) -> int:
    """Return the optimizer steps that so many examples take: batches of an epoch, grouped, times the epochs."""
    batches = math.ceil(examples / parameters.batch_size)
    return math.ceil(batches / parameters.gradient_accumulation) * parameters.epochs


def warmup_of(steps: int, parameters: TrainingParameters) -> int:
    """Return the optimizer steps of the warm-up."""
    return math.ceil(steps * parameters.warmup_ratio) if parameters.warmup_steps is None else parameters.warmup_steps


def arguments(
    job: Job, parameters: TrainingParameters, learning_rate: float, steps: int, device: str
) -> dict[str, Any]:
    """Return the training arguments that all of TRL's trainers share; none of them is left to a default that hides.

    Args:
        job: where the trainer may write.
        parameters: the granted ones.
        learning_rate: the peak.
        steps: optimizer steps in all, for the warm-up.
        device: what was chosen, ``cpu`` or ``cuda:0``.
    """
    optimizer = {"adamw": "adamw_torch_fused", "paged_adamw_8bit": "paged_adamw_8bit"}[parameters.optimizer_kind]
    return {
        "output_dir": str(job.folder / "trainer"),
        "optim": optimizer,
        "learning_rate": learning_rate,
        "num_train_epochs": parameters.epochs,
        "per_device_train_batch_size": parameters.batch_size,
        "gradient_accumulation_steps": parameters.gradient_accumulation,
        "warmup_steps": warmup_of(steps, parameters),
        "lr_scheduler_type": parameters.scheduler,
        "weight_decay": parameters.weight_decay,
        "max_grad_norm": parameters.max_grad_norm,
        "seed": parameters.seed,
        "data_seed": parameters.seed,
        "activation_checkpointing": parameters.gradient_checkpointing,
        "bf16": parameters.precision == "mixed",
        "fp16": False,
        "use_cpu": device == "cpu",
        "logging_steps": 1,
        "logging_first_step": True,
        # The default replaces a loss that is not a number by the mean of the others and goes on.
        "logging_nan_inf_filter": False,
        "save_strategy": "no" if parameters.checkpoint_steps is None else "steps",
        "save_steps": parameters.checkpoint_steps or 500,
        "save_total_limit": 2,
        "report_to": "none",
        "disable_tqdm": True,
    }


def logged(trainer: Any) -> list[dict[str, Any]]:
    """Return the log lines of optimizer steps, those before a resume included."""
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def seen_facts(trainer: Any, proof: MaskProof) -> dict[str, Any]:
    """Return what the manifest says of batches and masks."""
    lines = logged(trainer)
    batches = [digest for line in lines for digest in line["batches"]]
    return {
        "batches": len(batches),
        "distinct_batches": len(set(batches)),
        "masked_tokens": sum(line["masked"] for line in lines),
        "sequences": sum(line["sequences"] for line in lines),
        "trained_rows": len(trainer.train_dataset),
        "epochs_done": trainer.state.epoch,
        "resumed_from": trainer.resumed_from,
        "loss_difference": max((one.loss for one in trainer.compared.values()), default=None),
        "batches_computed_again": sum(one.whole for one in trainer.compared.values()),
        "mask": proof.facts(),
    }


def lengths(sides: list[Sides], tokenizer: Any, most: int) -> dict[str, int]:
    """Count sequences that are cut at ``most`` tokens, and those of which then nothing is left to learn from."""
    cut = dropped = 0
    for one in sides:
        prompt = len(one.prompt_ids(tokenizer))
        for response in one.responses:
            cut += len(one.whole_ids(tokenizer, response)) > most
            dropped += prompt >= most
    return {"cut": cut, "dropped": dropped}


def count_packed(trainer: Any, parameters: TrainingParameters) -> None:
    """Warm up by the steps that the packed rows take; how many there are is known only now."""
    trainer.args.warmup_steps = warmup_of(steps_of(len(trainer.train_dataset), parameters), parameters)


def attach(watchers: list[Any], trainer: Any) -> None:
    """Give the callbacks that look at the trainer the trainer they look at."""
    for one in watchers:
        if hasattr(one, "trainer"):
            one.trainer = trainer


def quiet() -> None:
    """Keep progress bars and advice of the libraries out of the job's log."""
    from datasets import disable_progress_bars
    from transformers.utils import logging

    disable_progress_bars()
    logging.set_verbosity_error()
