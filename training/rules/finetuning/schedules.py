"""The learning rates that a granted schedule makes (transformers' schedules), for jobs, gates and plans alike."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

SPEED = {"cpu": 6e10, "cuda": 1e14}
"""Operations a second in training: on two cores 29 to 33 % of 216 GFLOP/s; for a GPU an assumption, a third of an
A100's data sheet, a tenth of an H100's."""
STEP_OVERHEAD_S = 0.05
"""The time of an optimizer step on the smallest models, whose operations take no time."""


def expected_step_s(parameters: float, tokens: float, device: str) -> float:
    """Return the seconds that a step over so many tokens should take: 6 operations a parameter and token."""
    speed = SPEED["cuda" if device.startswith("cuda") else "cpu"]
    return 6 * parameters * tokens / speed + STEP_OVERHEAD_S


def steps_of(rows: int, arguments: Mapping[str, Any]) -> int:
    """Return the optimizer steps that so many rows take in all epochs.

    Prompts are counted in whole batches, per replica if replicas share them.
    """
    if arguments.get("distributed"):
        rows //= arguments["distributed"]["replicas"]
    if "generations" in arguments:
        at_once = arguments["batch_size"] * arguments["gradient_accumulation"] // arguments["generations"]
        return rows // at_once * arguments["updates"] * arguments["epochs"]
    batches = math.ceil(rows / arguments["batch_size"])
    return math.ceil(batches / arguments["gradient_accumulation"]) * arguments["epochs"]


def warmup_of(steps: int, arguments: Mapping[str, Any]) -> int:
    """Return the optimizer steps of the warm-up; a constant rate has none, whatever the ratio."""
    if arguments["scheduler"] == "constant":
        return 0
    warmup_steps = arguments.get("warmup_steps")
    return math.ceil(steps * arguments["warmup_ratio"]) if warmup_steps is None else warmup_steps


def curve(steps: int, total: int, arguments: Mapping[str, Any]) -> list[float]:
    """Return the rate before each of ``steps`` steps and after the last, of a schedule made for ``total`` steps."""
    peak, scheduler = arguments["learning_rate"], arguments["scheduler"]
    if scheduler == "constant":
        return [peak] * (steps + 1)
    warmup = warmup_of(total, arguments)
    values: list[float] = []
    for step in range(steps + 1):
        done = (step - warmup) / max(1, total - warmup)
        if step < warmup:
            values.append(peak * step / warmup)
        elif scheduler == "linear":
            values.append(peak * max(0.0, 1 - done))
        else:
            values.append(peak * max(0.0, 0.5 * (1 + math.cos(math.pi * done))))
    return values
