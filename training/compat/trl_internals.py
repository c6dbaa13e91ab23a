"""Private names of TRL: counts and metrics that its trainers keep, and steps of theirs that ours extend."""

from __future__ import annotations

import copy
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

VERSION = "1.16"
"""The minor version whose internals these are."""
OVERRIDDEN = {
    "trl.trainer.grpo_trainer.GRPOTrainer": (
        "_prepare_inputs",
        "_generate_single_turn",
        "_generate_and_score_completions",
        "_calculate_rewards",
        "_compute_loss",
    ),
    "trl.trainer.dpo_trainer.DPOTrainer": ("_precompute_ref_logps",),
    "trl.trainer.kto_trainer.KTOTrainer": ("_precompute_ref_logps",),
}
"""Methods of TRL's trainers that ours extend, by class."""


def passes_of(trainer: Any) -> int:
    """Return how many passes a trainer on rollouts has counted."""
    return trainer._step


def count_pass(trainer: Any) -> None:
    """Count a pass that a trainer on rollouts did not make; other trainers keep no count."""
    trainer._step = getattr(trainer, "_step", 0) + 1


@contextmanager
def keeping_metrics(trainer: Any) -> Generator[None]:
    """Restore a trainer's metrics of the running step afterwards: another pass adds to them."""
    stored = copy.deepcopy(getattr(trainer, "_stored_metrics", None))
    yield
    if stored is not None:
        trainer._stored_metrics = stored


def score_labelled_tokens() -> None:
    """Have TRL's output layer leave out tokens without a label on every device.

    Without Triton it projects all of a padded batch to the vocabulary, prompts too.
    """
    utils: Any = import_module("trl.trainer.utils")
    # This module asks it only whether to leave them out; the kernels ask under their own name.
    utils._use_triton = _always


def _always(_: object) -> bool:
    return True
