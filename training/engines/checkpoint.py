"""Load a checkpoint and say what it runs on."""

from __future__ import annotations

import gc
import json
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


# Which version wrote a file and from where must not change the digest of the same weights.
UNSTABLE = ("transformers_version", "_name_or_path", "is_local", "local_files_only")


def drop_unstable(folder: Path) -> None:
    """Remove from a checkpoint's JSON files what differs between machines for the same weights."""
    for path in folder.glob("*config.json"):
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        kept = {name: value for name, value in data.items() if name not in UNSTABLE}
        path.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n", encoding="utf-8")
