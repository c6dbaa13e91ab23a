"""The learning rates that a granted schedule makes (transformers' schedules), for jobs, gates and plans alike."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def steps_of(rows: int, given: Mapping[str, Any]) -> int:
    """Return the optimizer steps that so many rows take in all epochs.

    Of prompts, those that fill whole batches; of each replica where several share them.
    """
    if given.get("distributed"):
        rows //= given["distributed"]["replicas"]
    if "generations" in given:
        at_once = given["batch_size"] * given["gradient_accumulation"] // given["generations"]
        return rows // at_once * given["updates"] * given["epochs"]
    batches = math.ceil(rows / given["batch_size"])
    return math.ceil(batches / given["gradient_accumulation"]) * given["epochs"]


def warmup_of(steps: int, given: Mapping[str, Any]) -> int:
    """Return the optimizer steps of the warm-up; a constant rate has none, whatever the ratio."""
    if given["scheduler"] == "constant":
        return 0
    asked = given.get("warmup_steps")
    return math.ceil(steps * given["warmup_ratio"]) if asked is None else asked


def curve(steps: int, total: int, given: Mapping[str, Any]) -> list[float]:
    """Return the rate before each of ``steps`` steps and after the last, of a schedule made for ``total`` steps."""
    peak, scheduler = given["learning_rate"], given["scheduler"]
    if scheduler == "constant":
        return [peak] * (steps + 1)
    warmup = warmup_of(total, given)
    found: list[float] = []
    for step in range(steps + 1):
        done = (step - warmup) / max(1, total - warmup)
        if step < warmup:
            found.append(peak * step / warmup)
        elif scheduler == "linear":
            found.append(peak * max(0.0, 1 - done))
        else:
            found.append(peak * max(0.0, 0.5 * (1 + math.cos(math.pi * done))))
    return found
