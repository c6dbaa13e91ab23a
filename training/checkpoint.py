"""Load a checkpoint and say what it runs on."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any


def load(folder: Path) -> tuple[Any, Any]:
    """Return (model, tokenizer) in fp32 on the CPU, or in bf16 on the first GPU, in evaluation mode."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    on_gpu = torch.cuda.is_available()
    dtype = torch.bfloat16 if on_gpu else torch.float32
    model: Any = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype=dtype)
    return model.to("cuda:0" if on_gpu else "cpu").eval(), tokenizer


def save(model: Any, tokenizer: Any, folder: Path) -> None:
    """Save a checkpoint whose digest depends on weights and tokenizer, not on where and when it was written."""
    from training.model import drop_unstable

    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    drop_unstable(folder)


def device_of(model: Any) -> tuple[str, str]:
    """Return (device, dtype) read back from the parameters."""
    parameter = next(model.parameters())
    return str(parameter.device), str(parameter.dtype).removeprefix("torch.")


def free() -> None:
    """Give back the memory of models that nothing holds any more, before the next one is loaded."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()
