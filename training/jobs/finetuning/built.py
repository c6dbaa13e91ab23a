"""A trainer before its first step, for jobs, replicas and witnesses alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from training.jobs.finetuning.loss_masks import MaskProof
from training.jobs.finetuning.trained_model import Prepared
from training.jobs.finetuning.training_texts import Sides, Style


class Built(NamedTuple):
    """A trainer before its first step, and what it was built from."""

    trainer: Any
    prepared: Prepared
    sides: list[Sides]
    style: Style
    proof: MaskProof
    facts: dict[str, Any]
    """What is known of the data before training."""
    shown: Callable[[], dict[str, Any]]
    """Returns the facts that are known once it has trained."""
