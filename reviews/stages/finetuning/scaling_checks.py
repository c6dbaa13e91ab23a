"""Are there tokens enough for a training that has to teach a model everything, by the rule that its stage registers?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from reviews.checks.definition import CheckOutcome, CheckRegistry
from reviews.evidence.evidence import Evidence
from reviews.stages.finetuning.measure import steps_of
from reviews.stages.finetuning.optimizer_checks import distinct_share
from reviews.stages.finetuning.planned import most_rows
from reviews.stages.finetuning.weights import parameters_of
from specs.session.design import Design
from specs.stages.base.artifacts import Item
from specs.stages.base.metric import MetricSet
from specs.stages.finetuning.parameters import ScalingRule, SftParameters
from specs.stages.registry import kind_of

CHECKS = CheckRegistry(("sft",))
REPEATS = 15.39
"""Passes after which repeated tokens are worth little (R*_D of Muennighoff et al. 2023, arXiv:2305.16264)."""
FROM_SCRATCH = 20
"""Tokens a weight of a model that is trained from scratch with its compute used best (arXiv:2203.15556)."""
REFUSED = 0.5
"""Of the rule: less is refused, less than all of it is warned of."""
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
def _scaling(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Divide the tokens that carried loss, repeats counted for less, by the weights; compare with a registered rule."""
    parameters = evidence.parse_parameters(SftParameters)
    has, rule = parameters_of(evidence.outputs.get("checkpoint")), parameters.scaling
    if rule is None:
        distinct = sum(row.tokens for row in steps_of(evidence)) / parameters.epochs * distinct_share(evidence)
        each = worth(distinct, parameters.epochs) / has
        message = (
            f"about {distinct:.0f} distinct tokens in {parameters.epochs} passes over {has:,} weights: "
            f"{each:.2g} a weight, {each / FROM_SCRATCH:.2%} of the {FROM_SCRATCH} of training from scratch; "
            f"no rule is registered"
        )
        return CheckOutcome("PASS", message, each)
    if abs(has - rule.parameters) > _APART * has:
        message = f"the checkpoint has {has} parameters, the rule states {rule.parameters}"
        return CheckOutcome("FAIL", message, float(has), repairable=False)
    distinct = sum(row.tokens for row in steps_of(evidence)) / parameters.epochs * distinct_share(evidence)
    share = worth(distinct, parameters.epochs) / (has * rule.tokens_per_parameter)
    message = (
        f"about {distinct:.0f} distinct tokens in {parameters.epochs} passes are {share:.2%} of what the rule asks for"
    )
    if share < REFUSED:
        return CheckOutcome("FAIL", message, share, repairable=False)
    return CheckOutcome("WARN" if share < 1 else "PASS", message, share)
