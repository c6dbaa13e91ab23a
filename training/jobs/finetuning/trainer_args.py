"""The arguments that all trainers share, the settings read back from model, optimizer and schedule, and the facts.

Arguments prove nothing: a scheduler ignores a warm-up, a trainer turns dropout off, a module name matches nothing. Each
setting that is read back comes from the object that does the work.
"""

from __future__ import annotations

import math
from typing import Any

from specs.stages.finetuning.online_parameters import GrpoParameters
from specs.stages.finetuning.parameters import DpoParameters, SftParameters
from training.compat.transformers_internals import batch_size_of, computing_attention, supports_fused_attention
from training.jobs.finetuning.loss_masks import MaskProof
from training.jobs.finetuning.training_texts import PromptWithResponses
from training.jobs.job import Job
from training.rules.finetuning.schedules import warmup_of


def arguments(
    job: Job, parameters: SftParameters | DpoParameters | GrpoParameters, steps: int, device: str
) -> dict[str, Any]:
    """Return the training arguments that all of TRL's trainers share, without hidden defaults.

    ``steps`` are all optimizer steps, for the warm-up.
    """
    optimizer = {"adamw": "adamw_torch_fused", "paged_adamw_8bit": "paged_adamw_8bit"}[parameters.optimizer_kind]
    return {
        "output_dir": str(job.folder / "trainer"),
        "optim": optimizer,
        "learning_rate": parameters.learning_rate,
        "num_train_epochs": parameters.epochs,
        "per_device_train_batch_size": parameters.batch_size,
        "gradient_accumulation_steps": parameters.gradient_accumulation,
        "warmup_steps": warmup_of(steps, parameters.model_dump()),
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
        # The default replaces a loss that is not a number by the mean of the others and continues.
        "logging_nan_inf_filter": False,
        "save_strategy": "no" if parameters.checkpoint_steps is None else "steps",
        "save_steps": parameters.checkpoint_steps or 500,
        "save_total_limit": 2,
        "report_to": "none",
        "disable_tqdm": True,
    }


def list_logged_steps(trainer: Any) -> list[dict[str, Any]]:
    """Return the log lines of optimizer steps, including those before a resume."""
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def seen_facts(trainer: Any, proof: MaskProof) -> dict[str, Any]:
    """Return the facts of batches and masks for the manifest."""
    lines = list_logged_steps(trainer)
    batches = [digest for line in lines for digest in line["batches"]]
    return {
        "batches": len(batches),
        "distinct_batches": len(set(batches)),
        "masked_tokens": sum(line["masked"] for line in lines),
        "sequences": sum(line["sequences"] for line in lines),
        "trained_rows": len(trainer.train_dataset),
        "epochs_done": trainer.state.epoch,
        "resumed_from": trainer.resumed_from,
        "loss_difference": max((value.loss for value in trainer.compared.values()), default=None),
        "batches_computed_again": sum(value.whole for value in trainer.compared.values()),
        "mask": proof.facts(),
        "step_seconds": [round(step_second, 4) for step_second in trainer.step_seconds],
        "attention": attention_of(trainer.model),
    }


def attention_of(model: Any) -> dict[str, Any]:
    """Return which attention the model computes with, and whether it could with torch's fused one."""
    inner = model.get_base_model() if hasattr(model, "peft_config") else model
    return {"used": computing_attention(inner.config), "fused": supports_fused_attention(inner)}


def lengths(sides: list[PromptWithResponses], tokenizer: Any, most: int) -> dict[str, int]:
    """Count sequences that are cut at ``most`` tokens, and those without a response token after that."""
    cut = dropped = 0
    for side in sides:
        encoded = side.encode_sides(tokenizer)
        cut += sum(len(whole) > most for whole in encoded.wholes)
        dropped += len(encoded.wholes) * (len(encoded.prompt) >= most)
    return {"cut": cut, "dropped": dropped}


_SCHEDULES = {
    "_get_linear_schedule_with_warmup_lr_lambda": "linear",
    "_get_cosine_schedule_with_warmup_lr_lambda": "cosine",
    "_get_constant_schedule_with_warmup_lr_lambda": "constant",
    "_get_constant_lambda": "constant",
}
_OPTIMIZERS = {"AdamW": "adamw", "AdamW8bit": "paged_adamw_8bit", "PagedAdamW8bit": "paged_adamw_8bit"}


def read_back(trainer: Any, wanted_modules: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Return the settings that the trainer has built, once optimizer and schedule are there."""
    args, optimizer = trainer.args, getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    group = optimizer.param_groups[0]
    parameters = list(trainer.model.parameters())
    trained = sum(_size(parameter) for parameter in parameters if parameter.requires_grad)
    results = {
        "learning_rate": group.get("initial_lr", group["lr"]),
        "epochs": int(args.num_train_epochs) if args.max_steps <= 0 else trainer.state.num_train_epochs,
        "batch_size": batch_size_of(trainer),
        "gradient_accumulation": args.gradient_accumulation_steps,
        "weight_decay": max(param_group["weight_decay"] for param_group in optimizer.param_groups),
        "max_grad_norm": args.max_grad_norm,
        "seed": args.seed,
        "optimizer": type(optimizer).__name__,
        "optimizer_kind": _optimizer(optimizer),
        "checkpoint_steps": int(args.save_steps) if args.save_strategy == "steps" else None,
        "gradient_checkpointing": bool(getattr(trainer.model, "is_activation_checkpointing", False)),
        "precision": _precision(trainer),
        "device": next(iter(parameters)).device.type,
        "steps": trainer.state.global_step,
        "planned_steps": trainer.state.max_steps,
        "trained_parameters": trained,
        "trained_share": trained / sum(_size(parameter) for parameter in parameters),
    }
    if hasattr(args, "max_length"):
        results["max_length"] = args.max_length
    if hasattr(args, "packing"):
        results["packing"] = bool(args.packing)
    return results | _schedule(trainer) | _adapters(trainer.model, wanted_modules)


def differing(granted: dict[str, Any], effective: dict[str, Any]) -> list[str]:
    """Return in words which settings that can be read back differ from the granted ones."""
    return [
        f"{name} is {effective[name]}, expected {value}"
        for name, value in sorted(granted.items())
        if name in effective and not _same(value, effective[name])
    ]


def _same(granted: Any, effective: Any) -> bool:
    numbers = isinstance(granted, int | float) and isinstance(effective, int | float)
    if numbers and not isinstance(granted, bool):
        return math.isclose(granted, effective, rel_tol=1e-9, abs_tol=0.0)
    return granted == effective


def _size(parameter: Any) -> int:
    """Return the weights of a parameter; bitsandbytes packs two of 4 bits into a byte."""
    state = getattr(parameter, "quant_state", None)
    return int(math.prod(state.shape)) if state is not None else parameter.numel()


def _optimizer(optimizer: Any) -> str:
    kind = _OPTIMIZERS.get(type(optimizer).__name__, type(optimizer).__name__)
    if type(optimizer).__module__.startswith("bitsandbytes"):
        # transformers makes it as AdamW with 8 bits of state, paged.
        bits, paged = getattr(optimizer.args, "optim_bits", None), getattr(optimizer, "is_paged", False)
        return "paged_adamw_8bit" if (bits, paged) == (8, True) else f"{kind} of {bits} bits"
    return kind


def _schedule(trainer: Any) -> dict[str, Any]:
    scheduler = getattr(trainer.lr_scheduler, "scheduler", trainer.lr_scheduler)
    rule = scheduler.lr_lambdas[0]
    function = getattr(rule, "func", rule)
    name = getattr(function, "__name__", str(function))
    keywords = getattr(rule, "keywords", {})
    return {"scheduler": _SCHEDULES.get(name, name), "warmup_steps": keywords.get("num_warmup_steps", 0)}


def _precision(trainer: Any) -> str:
    weights = {
        str(parameter.dtype).removeprefix("torch.")
        for parameter in trainer.model.parameters()
        if not parameter.requires_grad
    }
    # Adapters are in float32 over weights of bfloat16; the base says what is computed in.
    every = weights or {str(parameter.dtype).removeprefix("torch.") for parameter in trainer.model.parameters()}
    if trainer.accelerator.mixed_precision == "bf16":
        return "mixed" if every == {"float32"} else "bfloat16"
    # What is packed into bytes is computed in the precision of the layers next to it.
    return "+".join(sorted(every - {"uint8"}))


def _adapters(model: Any, wanted: tuple[str, ...] | None) -> dict[str, Any]:
    config = getattr(model, "peft_config", {}).get("default")
    if config is None:
        return {"method": "full"}
    from peft.tuners.lora import LoraLayer

    layers = {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}
    ends = {name.rsplit(".", 1)[-1] for name in layers}
    ordered = [name for name in wanted or () if any(layer == name or layer.endswith(f".{name}") for layer in layers)]
    extra = sorted(end for end in ends if not any(name.rsplit(".", 1)[-1] == end for name in ordered))
    dropouts = {float(getattr(layer.lora_dropout["default"], "p", 0.0)) for layer in layers.values()}
    ranks = {layer.r["default"] for layer in layers.values()}
    four = any(getattr(parameter, "quant_state", None) is not None for parameter in model.parameters())
    return {
        "method": "qlora" if four else "lora",
        "lora_rank": _only(ranks),
        "lora_alpha": _only({round(layer.scaling["default"] * layer.r["default"], 6) for layer in layers.values()}),
        "lora_dropout": _only(dropouts),
        "target_modules": [*ordered, *extra],
        "adapted_layers": len(layers),
    }


def _only(values: set[Any]) -> Any:
    """Return the value that all layers share, or all values as text if they differ."""
    return next(iter(values)) if len(values) == 1 else str(sorted(values))
