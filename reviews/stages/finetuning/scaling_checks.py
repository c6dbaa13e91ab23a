"""Does a planned training fit its schedule, and does a training from scratch get tokens enough?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from reviews.checks.definition import CheckLimit, CheckOutcome, CheckRegistry
from reviews.evidence.evidence import Evidence
from reviews.stages.finetuning.measure import count_passes, steps_of
from reviews.stages.finetuning.optimizer_checks import distinct_share
from reviews.stages.finetuning.weights import parameters_of
from specs.session.design import Design
from specs.stages.base.artifacts import Item
from specs.stages.base.metric import MetricSet
from specs.stages.finetuning.parameters import ScalingRule, SftParameters
from specs.stages.registry import Stage, kind_of
from specs.system.exact import holds
from training.rules.finetuning.schedules import steps_of as planned_steps
from training.rules.finetuning.schedules import warmup_of

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
        steps = planned_steps(rows, arguments)
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
    samples_per_prompt = getattr(made.parameters, "samples_per_prompt", None)
    if not items or samples_per_prompt is None:
        return None
    limits = made.ranges.get("samples_per_prompt")
    most = getattr(made.parameters, "max_prompts", None) or len(items)
    return min(most, len(items)) * int(
        max(samples_per_prompt, limits.max) if limits is not None else samples_per_prompt
    )


def _count_rows(rows: tuple[Item, ...], rows_per_kind: int | None) -> int:
    """Return how many rows remain of each kind's at most ``rows_per_kind``."""
    return sum(min(count, rows_per_kind or count) for count in Counter(row.kind for row in rows).values())


CHECKS = CheckRegistry(("sft",))
REPEATS = 15.39
"""Passes after which repeated tokens are worth little (R*_D of Muennighoff et al. 2023, arXiv:2305.16264)."""
FROM_SCRATCH = 20
"""Tokens a weight of a model that is trained from scratch with its compute used best (arXiv:2203.15556)."""
REFUSED = 0.5
"""The share of the rule below which a training is refused; below the whole rule a check warns."""
_APART = 0.05
"""Share by which the stated number of parameters may differ from the trained checkpoint's."""


def worth(distinct: float, passes: float) -> float:
    """Return how many distinct tokens some tokens, read so many times, are worth (ibid., equation 5)."""
    return distinct * (1 + REPEATS * (1 - math.exp(-max(0.0, passes - 1) / REPEATS)))


def planned_tokens(spec: Design, data: Mapping[str, tuple[Item, ...]]) -> CheckOutcome:
    """Compare the most that each training with a rule can get, every row as long as allowed, with its rule."""
    pairs: list[tuple[float, dict[str, Any]]] = []
    ruled = 0
    for stage in spec.stages:
        rule: ScalingRule | None = getattr(stage.parameters, "scaling", None)
        if rule is None or not kind_of(stage).trains:
            continue
        ruled += 1
        rows = most_rows(spec, stage, data)
        if rows:
            passes = math.inf if "epochs" in stage.ranges else stage.parameters.epochs
            most = worth(rows * stage.parameters.max_length, passes)
            share = most / (rule.parameters * rule.tokens_per_parameter)
            pairs.append((share, {"stage": stage.name, "tokens at most": round(most), "parameters": rule.parameters}))
    if not ruled:
        return CheckOutcome("NOT_APPLICABLE", "no stage registers a rule: none trains from scratch")
    if not pairs:
        return CheckOutcome(
            "NOT_APPLICABLE", "how many tokens there will be is not known beforehand: training.scaling counts"
        )
    share, first = min(pairs, key=lambda pair: pair[0])
    message = f"'{first['stage']}' can get {share:.2%} of the tokens that its rule asks for, at the most"
    visible = tuple(row for part, row in pairs if part < 1)
    if share < REFUSED:
        return CheckOutcome("FAIL", message, share, visible, repairable=False)
    return CheckOutcome("WARN", message, share, visible) if share < 1 else CheckOutcome("PASS", message, share)


@CHECKS.add(
    "training.scaling",
    "A training had the tokens that its registered rule asks for; without a rule, how many it had for each weight",
    source="data starvation of a model from scratch; Hoffmann et al. 2022, arXiv:2203.15556",
    reads_weights=True,
)
def _check_scaling(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Divide the tokens that carried loss, repeats counted for less, by the weights; compare with a registered rule."""
    parameters = evidence.parse_parameters(SftParameters)
    has, rule = parameters_of(evidence.outputs.get("checkpoint")), parameters.scaling
    passes = count_passes(evidence)
    if rule is None:
        distinct = sum(row.tokens for row in steps_of(evidence)) / passes * distinct_share(evidence)
        ratio = worth(distinct, passes) / has
        message = (
            f"about {distinct:.0f} distinct tokens in {passes:g} passes over {has:,} weights: "
            f"{ratio:.2g} a weight, {ratio / FROM_SCRATCH:.2%} of the {FROM_SCRATCH} of training from scratch; "
            f"no rule is registered"
        )
        return CheckOutcome("PASS", message, ratio)
    if abs(has - rule.parameters) > _APART * has:
        message = f"the checkpoint has {has} parameters, the rule states {rule.parameters}"
        return CheckOutcome("FAIL", message, float(has), repairable=False)
    distinct = sum(row.tokens for row in steps_of(evidence)) / passes * distinct_share(evidence)
    share = worth(distinct, passes) / (has * rule.tokens_per_parameter)
    message = f"about {distinct:.0f} distinct tokens in {passes:g} passes are {share:.2%} of what the rule asks for"
    if share < REFUSED:
        return CheckOutcome("FAIL", message, share, repairable=False)
    return CheckOutcome("WARN" if share < 1 else "PASS", message, share)
