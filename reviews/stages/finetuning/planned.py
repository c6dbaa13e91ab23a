"""Does a planned training fit its schedule? Asked of the design, with the most rows that it can get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from reviews.checks.definition import CheckLimit, CheckOutcome
from specs.session.design import Design
from specs.stages.base.artifacts import Item
from specs.stages.registry import Stage, kind_of
from specs.system.exact import holds
from training.rules.finetuning.schedules import steps_of, warmup_of

LIMITS = (CheckLimit("<=", "thresholds.warmup_share"),)
_MOVABLE = ("epochs", "batch_size", "gradient_accumulation", "warmup_steps", "warmup_ratio", "scheduler")
"""Parameters that change it: where a stage's ranges hold one, nothing is certain beforehand."""


def schedules_of(spec: Design, data: Mapping[str, tuple[Item, ...]]) -> CheckOutcome:
    """Compare the warm-up of each training with its steps, made of all rows that it can get at the most."""
    wrong: list[dict[str, Any]] = []
    certain = False
    known = 0
    for stage in spec.stages:
        arguments: dict[str, Any] = stage.parameters.model_dump(mode="json")
        if not kind_of(stage).trains or "scheduler" not in arguments or arguments.get("learning_rate") == 0:
            continue
        rows = most_rows(spec, stage, data)
        if not rows:
            continue
        known += 1
        steps = steps_of(rows, arguments)
        warmup = warmup_of(steps, arguments)
        if holds(warmup / steps, "<=", spec.thresholds.warmup_share):
            continue
        certain |= warmup >= steps and not set(_MOVABLE) & stage.ranges.keys()
        wrong.append({"stage": stage.name, "steps at most": steps, "of warm-up": warmup})
    if wrong:
        first = wrong[0]
        message = (
            f"'{first['stage']}' takes at most {first['steps at most']} steps, {first['of warm-up']} of them warm-up"
        )
        why = ": the rate never reaches its peak" if certain else ""
        return CheckOutcome(
            "FAIL" if certain else "WARN", message + why, float(len(wrong)), tuple(wrong), repairable=False
        )
    if not known:
        return CheckOutcome("NOT_APPLICABLE", "no stage trains on rows whose number is known beforehand")
    return CheckOutcome(
        "PASS", f"the warm-up of {known} training{'s' if known > 1 else ''} is a small part of the steps", 0.0
    )


def most_rows(spec: Design, stage: Stage, data: Mapping[str, tuple[Item, ...]]) -> int | None:
    """Return how many rows a training can get at the most; None where that is not known beforehand."""
    source, _, name = stage.inputs[kind_of(stage).trains].partition(".")
    if source == "data":
        return _count_rows(data.get(name, ()), getattr(stage.parameters, "max_examples_per_kind", None))
    made = next((stage for stage in spec.stages if stage.name == source), None)
    if made is None or not kind_of(made).sampled_by_task or "prompts" not in made.inputs:
        return None
    place, _, prompts = made.inputs["prompts"].partition(".")
    items = data.get(prompts, ()) if place == "data" else ()
    each = getattr(made.parameters, "samples_per_prompt", None)
    if not items or each is None:
        return None
    limits = made.ranges.get("samples_per_prompt")
    most = getattr(made.parameters, "max_prompts", None) or len(items)
    return min(most, len(items)) * int(max(each, limits.max) if limits is not None else each)


def _count_rows(rows: tuple[Item, ...], each: int | None) -> int:
    """Return how many rows remain of each kind's at most ``each``."""
    return sum(min(count, each or count) for count in Counter(row.kind for row in rows).values())
