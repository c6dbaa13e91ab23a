"""The settings a trainer works with, read back from model, optimizer and schedule, by the name of the parameter.

What the trainer was told is not evidence of what it does: a scheduler ignores a warm-up, a trainer turns dropout off,
a module name matches nothing. So each value comes from the object that does the work.
"""

from __future__ import annotations

import math
from typing import Any

_SCHEDULES = {
    "_get_linear_schedule_with_warmup_lr_lambda": "linear",
    "_get_cosine_schedule_with_warmup_lr_lambda": "cosine",
    "_get_constant_schedule_with_warmup_lr_lambda": "constant",
    "_get_constant_lambda": "constant",
}
_OPTIMIZERS = {"AdamW": "adamw", "AdamW8bit": "paged_adamw_8bit", "PagedAdamW8bit": "paged_adamw_8bit"}


def read_back(trainer: Any, wanted_modules: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Return what the trainer has built: to be called once optimizer and schedule are there."""
    args, optimizer = trainer.args, getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    group = optimizer.param_groups[0]
    parameters = list(trainer.model.parameters())
    trained = sum(_size(one) for one in parameters if one.requires_grad)
    found = {
        "learning_rate": group.get("initial_lr", group["lr"]),
        "epochs": int(args.num_train_epochs) if args.max_steps <= 0 else trainer.state.num_train_epochs,
        "batch_size": trainer._train_batch_size,
        "gradient_accumulation": args.gradient_accumulation_steps,
        "max_length": args.max_length,
        "weight_decay": max(one["weight_decay"] for one in optimizer.param_groups),
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
        "trained_share": trained / sum(_size(one) for one in parameters),
    }
    if hasattr(args, "packing"):
        found["packing"] = bool(args.packing)
    return found | _schedule(trainer) | _adapters(trainer.model, wanted_modules)


def differing(granted: dict[str, Any], effective: dict[str, Any]) -> list[str]:
    """Return in words what was granted and is not so; only what can be read back is compared."""
    found: list[str] = []
    for name, value in sorted(granted.items()):
        if name in effective and not _same(value, effective[name]):
            found.append(f"{name} is {effective[name]}, granted was {value}")
    return found


def _same(granted: Any, effective: Any) -> bool:
    numbers = isinstance(granted, int | float) and isinstance(effective, int | float)
    if numbers and not isinstance(granted, bool):
        return math.isclose(granted, effective, rel_tol=1e-9, abs_tol=0.0)
    return granted == effective


def _size(parameter: Any) -> int:
    """Return how many weights a parameter stands for; bitsandbytes packs two of 4 bits into a byte."""
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
    weights = {str(one.dtype).removeprefix("torch.") for one in trainer.model.parameters() if not one.requires_grad}
    # Adapters are kept in float32 over weights of bfloat16; the base says what is computed in.
    every = weights or {str(one.dtype).removeprefix("torch.") for one in trainer.model.parameters()}
    if trainer.accelerator.mixed_precision == "bf16":
        return "mixed" if every == {"float32"} else "bfloat16"
    # What is packed into bytes is computed in the precision of the layers beside it.
    return "+".join(sorted(every - {"uint8"}))


def _adapters(model: Any, wanted: tuple[str, ...] | None) -> dict[str, Any]:
    config = getattr(model, "peft_config", {}).get("default")
    if config is None:
        return {"method": "full"}
    from peft.tuners.lora import LoraLayer

    layers = {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}
    ends = {name.rsplit(".", 1)[-1] for name in layers}
    ordered = [name for name in wanted or () if any(one == name or one.endswith(f".{name}") for one in layers)]
    extra = sorted(one for one in ends if not any(name.rsplit(".", 1)[-1] == one for name in ordered))
    dropouts = {float(getattr(layer.lora_dropout["default"], "p", 0.0)) for layer in layers.values()}
    ranks = {layer.r["default"] for layer in layers.values()}
    four = any(getattr(one, "quant_state", None) is not None for one in model.parameters())
    return {
        "method": "qlora" if four else "lora",
        "lora_rank": _only(ranks),
        "lora_alpha": _only({round(one.scaling["default"] * one.r["default"], 6) for one in layers.values()}),
        "lora_dropout": _only(dropouts),
        "target_modules": [*ordered, *extra],
        "adapted_layers": len(layers),
    }


def _only(values: set[Any]) -> Any:
    """Return the one value all layers share, or all of them as text when they differ."""
    return next(iter(values)) if len(values) == 1 else str(sorted(values))
