"""Is the training on rollouts healthy: near its reference, still exploring, and better at what it is meant to be?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, variance
from typing import NamedTuple

from reviews.checks.definition import CheckLimit, CheckOutcome, CheckRegistry, need
from reviews.evidence.evidence import Evidence
from reviews.stages.finetuning.checks import ONLINE
from reviews.stages.finetuning.online import Worth, kept_of, parse_grpo_parameters, steps_of, worths
from reviews.statistics import mcnemar
from specs.stages.base.metric import MetricSet
from specs.stages.finetuning.online_rows import RolloutStep
from specs.system.exact import holds

CHECKS = CheckRegistry(ONLINE)
CLEAR = 3.0
"""Standard errors between the means of groups of answers: fewer are not rise."""
FEWEST = 5
"""Kept-out prompts: of fewer nothing is concluded."""


def _fifths(rows: Sequence[RolloutStep]) -> tuple[Sequence[RolloutStep], Sequence[RolloutStep]]:
    fifth = max(1, len(rows) // 5)
    return rows[:fifth], rows[-fifth:]


def _advice(figure: float, sign: str, limit: float, detail: str) -> CheckOutcome:
    """Return PASS where the figure is on the healthy side of the registered limit, and WARN where it is not."""
    return CheckOutcome("PASS" if holds(figure, sign, limit) else "WARN", detail, figure)


def _mean(rows: Sequence[RolloutStep], of: Callable[[RolloutStep], float | None]) -> float | None:
    values = [value for rollout_step in rows if (value := of(rollout_step)) is not None]
    return fmean(values) if values else None


@CHECKS.add(
    "rollouts.kl",
    "The model stayed near its starting weights",
    source="a policy that left what its reward was made for; Gao et al. 2022, arXiv:2210.10760",
    limits=(CheckLimit("<=", "thresholds.rollout_kl"),),
    blocking=False,
)
def _check_kl(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Look at the KL divergence of a token in the last fifth of the steps."""
    last = _mean(_fifths(steps_of(evidence))[1], lambda row: row.kl)
    if last is None:
        return CheckOutcome("WARN", "kl_weight is 0 or channel grpo left out: how far the model moved was not measured")
    detail = f"{last:.3g} nats a token from the granted model in the last fifth of the steps"
    return _advice(last, "<=", evidence.resolved.spec.thresholds.rollout_kl, detail)


@CHECKS.add(
    "rollouts.entropy",
    "The answers still differ",
    source="entropy collapse; Cui et al. 2025, arXiv:2505.22617",
    limits=(CheckLimit(">=", "thresholds.entropy_left"),),
    blocking=False,
)
def _check_entropy(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the entropy of a token in the last fifth of the steps with the first."""
    first, last = (_mean(rows, lambda row: row.entropy) for rows in _fifths(steps_of(evidence)))
    if not first or last is None:
        return CheckOutcome("NOT_APPLICABLE", "no step states an entropy")
    detail = f"the entropy of a token went from {first:.3g} to {last:.3g} nats"
    return _advice(last / first, ">=", evidence.resolved.spec.thresholds.entropy_left, detail)


@CHECKS.add(
    "rollouts.length",
    "Answers are about as long as they were",
    source="answers that grow because length pays; Singhal et al. 2023, arXiv:2310.03716",
    limits=(CheckLimit("<=", "thresholds.rollout_length"),),
    blocking=False,
)
def _check_length(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the mean tokens of answers in the last fifth of the rounds with the first, either way."""
    every = worths(evidence)
    first = fmean(len(worth.row.answer_ids) for worth in every if worth.first)
    last = fmean(len(worth.row.answer_ids) for worth in every if worth.last)
    ratio = (max(first, last) + 1) / (min(first, last) + 1)
    detail = f"the mean answer went from {first:.1f} to {last:.1f} tokens"
    return _advice(ratio, "<=", evidence.resolved.spec.thresholds.rollout_length, detail)


@CHECKS.add(
    "rollouts.ties",
    "Answers of a group differ in reward",
    source="groups of equal rewards, which teach nothing; Yu et al. 2025, arXiv:2503.14476",
    limits=(CheckLimit("<=", "thresholds.tied_groups"),),
    blocking=False,
)
def _check_ties(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Count answers of groups in which every reward is the same."""
    every = worths(evidence)
    share = sum(worth.tied for worth in every) / len(every)
    detail = f"{share:.0%} of the answers are of groups in which all are worth the same"
    return _advice(share, "<=", evidence.resolved.spec.thresholds.tied_groups, detail)


@CHECKS.add(
    "rollouts.clipped",
    "Few tokens left the clipping range",
    source="steps so large that most of the gradient is cut off; Schulman et al. 2017, arXiv:1707.06347",
    limits=(CheckLimit("<=", "thresholds.clipped_tokens"),),
    blocking=False,
)
def _check_clipping(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Look at the step with the largest share of clipped tokens."""
    stated = [row.clipped for row in steps_of(evidence) if row.clipped is not None]
    if not stated:
        return CheckOutcome("NOT_APPLICABLE", "no step states which tokens were clipped")
    if parse_grpo_parameters(evidence).updates == 1:
        return CheckOutcome("NOT_APPLICABLE", "with one update on the same answers no ratio can leave the range")
    most = max(stated)
    detail = f"at most {most:.1%} of the tokens of a step left the clipping range"
    return _advice(most, "<=", evidence.resolved.spec.thresholds.clipped_tokens, detail)


class _Rise(NamedTuple):
    """How far the mean of groups rose from the first fifth of the rounds to the last."""

    by: float
    errors: float
    """In its standard errors."""


def _rise(every: Sequence[Worth], size: int, of: Callable[[Worth], float]) -> _Rise:
    groups = [every[at : at + size] for at in range(0, len(every), size)]
    first = [fmean(map(of, group)) for group in groups if group[0].first]
    last = [fmean(map(of, group)) for group in groups if group[0].last]
    by = fmean(last) - fmean(first)
    if len(first) < 2 or len(last) < 2:
        return _Rise(by, 0.0)
    error = math.sqrt(variance(first) / len(first) + variance(last) / len(last))
    return _Rise(by, by / error if error else math.copysign(math.inf, by) if by else 0.0)


@CHECKS.add(
    "rollouts.hacking",
    "The reward rose because answers got right",
    source="reward hacking: Skalse et al. 2022, arXiv:2209.13085; Gao et al. 2022, arXiv:2210.10760",
    limits=(CheckLimit(">=", "thresholds.verified_rise"),),
)
def _check_hacking(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    """Compare the rise of the reward with what the verifier explains of it, and with prompts that were kept out."""
    grpo_parameters, every, remaining = parse_grpo_parameters(evidence), worths(evidence), kept_of(evidence)
    least = evidence.resolved.spec.thresholds.verified_rise
    reward = _rise(every, grpo_parameters.generations, lambda worth: worth.reward)
    verified = _rise(every, grpo_parameters.generations, lambda worth: float(worth.verified))
    first, last = (need(metrics, f"{evidence.stage.kind}_{name}_reward") for name in ("first", "last"))
    detail = f"the reward went from {first:.3g} to {last:.3g}"
    if reward.errors < CLEAR:
        return CheckOutcome("PASS", f"{detail}, {reward.errors:.1f} standard errors: no clear rise", 0.0)
    share = grpo_parameters.rewards.get("verified", 0.0) * verified.by / reward.by
    detail += f"; right answers explain {share:.0%} of that"
    if not holds(share, ">=", least):
        return CheckOutcome(
            "FAIL", f"{detail}: something other than right answers was learned", share, repairable=False
        )
    if len(remaining) < FEWEST:
        return CheckOutcome("WARN", f"{detail}; {len(remaining)} prompts were kept out, too few to see it there", share)
    gained, lost = (
        sum(value.after and not value.before for value in remaining),
        sum(value.before and not value.after for value in remaining),
    )
    detail += f"; of {len(remaining)} prompts kept out {gained} were gained and {lost} lost"
    if lost > gained and mcnemar.exact_mcnemar(gained, lost) < 0.05:
        return CheckOutcome("FAIL", f"{detail}: what was learned does not hold there", share, repairable=False)
    return CheckOutcome("PASS" if gained > lost else "WARN", detail, share)
