"""Load and save a checkpoint, and say what it runs on."""

from __future__ import annotations

import gc
import json
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from specs.system.regular_files import read_regular
from training.compat.torch_internals import pack_linear_layers

UNSTABLE = ("transformers_version", "_name_or_path", "is_local", "local_files_only")
"""Entries of a configuration that must not change the digest of the same weights."""


def import_libraries() -> None:
    """Import what :func:`load` needs, without reading a file of a model.

    It takes seconds, which a job spends while digests are computed.
    """
    for name in ("modeling_utils", "models.auto.modeling_auto", "models.auto.tokenization_auto"):
        import_module(f"transformers.{name}")


def most_difference(dtype: str) -> float:
    """Return the largest difference of logits, as a share of the largest one, that another order of sums makes.

    It holds for merged or not, packed or alone, cached or read whole, and refuses a job, not a gate. Types other than
    float32 have the bound of bfloat16.
    """
    return 1e-3 if dtype == "float32" else 0.1


def apart(value: Any, other: Any) -> float:
    """Return the largest difference of logits as a share of the largest of ``value``."""
    return float((value - other).abs().max() / value.abs().max())


@contextmanager
def evaluating(model: Any) -> Generator[None]:
    """Have a model compute without dropout and gradients while this lasts."""
    import torch

    before = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(before)


def load(folder: Path, device: str | None = None, dtype: Any = None, **more: Any) -> tuple[Any, Any]:
    """Return (model, tokenizer) in evaluation mode: in bf16 on the first GPU, without one in fp32 on the CPU.

    ``device`` and ``dtype`` of torch replace these; ``more`` is for the library, and with a ``device_map`` it places.
    """
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = tokenizer_in(folder)
    device = device or ("cuda:0" if torch.cuda.is_available() else "cpu")
    dtype = dtype or (torch.float32 if device == "cpu" else torch.bfloat16)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype=dtype, **more)
    return (model if "device_map" in more else model.to(device)).eval(), tokenizer


def load_for_inference(folder: Path) -> tuple[Any, Any]:
    """Return (model, tokenizer) as :func:`load` does, for passes without gradients by weights that do not change."""
    model, tokenizer = load(folder)
    pack_linear_layers(model)
    return model, tokenizer


def tokenizer_in(folder: Path) -> Any:
    """Return the tokenizer of a checkpoint."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


PART = "4GB"
"""The size of one file of weights, as in published models: files are digested in parallel."""


def save(model: Any, tokenizer: Any, folder: Path) -> None:
    """Save a checkpoint whose digest depends on weights and tokenizer, not on where and when it was written."""
    model.save_pretrained(folder, max_shard_size=PART)
    tokenizer.save_pretrained(folder)
    drop_unstable(folder)


def describe(model: Any, tokenizer: Any, folder: Path) -> None:
    """Save what :func:`save` saves, without the weights: configurations and tokenizer."""
    model.save_pretrained(folder, state_dict={})
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    tokenizer.save_pretrained(folder)
    drop_unstable(folder)


def device_of(model: Any) -> tuple[str, str]:
    """Return (device, dtype) read back from the parameters."""
    parameter = next(model.parameters())
    return str(parameter.device), str(parameter.dtype).removeprefix("torch.")


def free() -> None:
    """Free the memory of models that nothing refers to, before the next one is loaded."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()


def drop_unstable(folder: Path) -> None:
    """Remove from a checkpoint's JSON files what differs between machines for the same weights."""
    for path in folder.glob("*config.json"):
        data: dict[str, Any] = json.loads(read_regular(path).decode("utf-8"))
        remaining = {name: value for name, value in data.items() if name not in UNSTABLE}
        path.write_text(json.dumps(remaining, indent=2, sort_keys=True) + "\n", encoding="utf-8")
