"""The model to train: where it runs, in which precision, with which adapters.

No library chooses: a granted GPU that is missing is refused, and so is a module name that no layer has.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from specs.stages.finetuning.parameters import TrainingParameters
from specs.system.extras import install_hint
from training.engines import checkpoint
from training.jobs.job import place, refuse


@dataclass
class PreparedModel:
    """A loaded model with its tokenizer, and the adapters to give it (None for full training)."""

    model: Any
    """None once it is saved: nothing may refer to it while a second one is loaded."""
    tokenizer: Any
    device: str
    adapter: Any | None


def prepare(folder: Path, parameters: TrainingParameters) -> PreparedModel:
    """Load a checkpoint as the parameters say; exit with code 4 if this machine cannot."""
    import torch

    place(parameters.device)
    device = "cuda:0" if torch.cuda.is_available() and parameters.device != "cpu" else "cpu"
    needs = parameters.method == "qlora" or parameters.optimizer_kind != "adamw"
    if needs and find_spec("bitsandbytes") is None:
        what = "method: qlora" if parameters.method == "qlora" else f"optimizer_kind: {parameters.optimizer_kind}"
        refuse(f"{what} needs the package bitsandbytes, which is not installed: {install_hint('qlora')}")
    dtype = {"auto": None, "bfloat16": torch.bfloat16}.get(parameters.precision, torch.float32)
    four = {"quantization_config": four_bits(), "device_map": {"": device}} if parameters.method == "qlora" else {}
    model, tokenizer = checkpoint.load(folder, device, dtype, **four)
    if four and device == "cpu":
        _keep_constants(model)
    return PreparedModel(model.train(), tokenizer, device, adapter(model, parameters))


def _keep_constants(model: Any) -> None:
    """Keep the layers of 4 bits as they were loaded.

    With AVX512 bitsandbytes (0.50.2) rearranges the weights of a layer in evaluation mode. On the way back it rounds
    the constants of the blocks again, so that frozen weights change, and rearranged layers pass no gradient on.
    """
    for layer in model.modules():
        if hasattr(layer, "support_avx512bf16_for_cpu"):
            layer.support_avx512bf16_for_cpu = False


def four_bits() -> Any:
    """Return NormalFloat of 4 bits with doubly quantised constants, computed in bfloat16 (arXiv:2305.14314)."""
    import torch
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


def adapter(model: Any, parameters: TrainingParameters) -> Any | None:
    """Return the configuration of the granted adapters, None for full training; unknown modules are refused."""
    if parameters.method == "full":
        return None
    from peft import LoraConfig
    from torch import nn

    wanted = list(parameters.target_modules or ())
    linear = {name for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    ends = {name.rsplit(".", 1)[-1] for name in linear}
    unknown = sorted(module for module in wanted if not any(f".{name}".endswith(f".{module}") for name in linear))
    if unknown:
        refuse(f"target_modules names {', '.join(unknown)}, the linear layers here are {', '.join(sorted(ends))}")
    return LoraConfig(
        r=parameters.lora_rank or 0,
        lora_alpha=parameters.lora_alpha or 0,
        lora_dropout=parameters.lora_dropout or 0.0,
        target_modules=wanted,
        bias="none",
        task_type="CAUSAL_LM",
    )
