"""Private names of transformers: the attention that a model computes with, and parts of its trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

VERSION = "5.23"
"""The minor version whose internals these are."""
OVERRIDDEN = ("_get_grad_norm", "_get_train_sampler", "_save_checkpoint")
"""Methods of ``Trainer`` that ours extend."""


def computing_attention(config: Any) -> str:
    """Return the name of the attention that a configured model computes with."""
    return str(getattr(config, "_attn_implementation", "unknown"))


def supports_fused_attention(model: Any) -> bool:
    """Return whether a model could compute with torch's fused attention."""
    return bool(getattr(model, "_supports_sdpa", False))


def batch_size_of(trainer: Any) -> int:
    """Return how many rows a trainer takes at a time, which the trainer may have changed."""
    return trainer._train_batch_size


def load_weights(trainer: Any, folder: Path) -> None:
    """Replace the weights of a trainer's model, or its adapters, by those of a saved step."""
    trainer._load_from_checkpoint(str(folder))
