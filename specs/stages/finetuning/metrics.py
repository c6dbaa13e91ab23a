"""The metrics of training.

What says whether training on pairs worked is computed from pairs that were not trained on, and in the same way for
every loss: each response is compared with itself before training. The trainer's own rewards are rows, and no metric.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from specs.stages.base.metric import Population, RowMetric, Value, count, metric, rate, share, total, where

_STEPS = Population("all optimizer steps, in order")
_FIRST = where("the first fifth of the steps (at least 1)", lambda step: step.first)
_LAST = where("the last fifth of the steps (at least 1)", lambda step: step.last)
_PAIRS = Population("pairs of the groups that were kept out of training", output="scored_pairs")
"""Where no pair was kept out the judge has none, and the metrics over them are left out."""
_VALIDATION = Population("examples of the groups that were kept out of training", output="validation")
_BEFORE = where("those examples before the first step", lambda value: value.first, "validation")
_AFTER = where("those examples by the weights that were saved", lambda value: value.saved, "validation")
_LOWEST = where("those examples where their loss is lowest", lambda value: value.lowest, "validation")


def _mean(text: str, of: Callable[[Any], float]) -> Value:
    return Value(text, lambda rows: sum(of(row) for row in rows) / len(rows))


def _drop(steps: Sequence[Any]) -> float:
    first, last = ([step.row.loss for step in steps if over.holds(step)] for over in (_FIRST, _LAST))
    return sum(first) / len(first) - sum(last) / len(last)


def _of_steps(prefix: str, unit: str, tokens: str) -> tuple[RowMetric, ...]:
    loss = _mean("mean of the step losses", lambda step: step.row.loss)
    summed = total(f"{tokens}, summed over steps", lambda step: step.row.tokens)
    drop = Value(f"{prefix}first_loss - {prefix}last_loss", _drop, (_FIRST, _LAST))
    steepest = Value(
        "largest gradient norm before clipping",
        lambda steps: max(step.row.grad_norm for step in steps),
        (where("have the largest gradient norm", lambda step: step.steepest),),
    )
    return (
        metric(f"{prefix}steps", "optimizer steps", count, over=_STEPS),
        metric(f"{prefix}train_tokens", "model tokens", summed, over=_STEPS),
        metric(f"{prefix}first_loss", unit, loss, "lower", over=_FIRST),
        metric(f"{prefix}last_loss", unit, loss, "lower", over=_LAST),
        metric(f"{prefix}loss_drop", unit, drop, "higher", over=_STEPS),
        metric(f"{prefix}max_grad_norm", "L2 norm", steepest, "lower", over=_STEPS),
    )


def _gain(pair: Any) -> float:
    return (pair.chosen_after - pair.chosen_before) - (pair.rejected_after - pair.rejected_before)


def _validation_loss(rows: Sequence[Any]) -> float:
    return -sum(row.row.log_probability for row in rows) / sum(row.row.tokens for row in rows)


def _validation_rise(rows: Sequence[Any]) -> float:
    last, lowest = ([row for row in rows if over.holds(row)] for over in (_AFTER, _LOWEST))
    return _validation_loss(last) - _validation_loss(lowest)


_per_token = Value("minus the summed log-probabilities / tokens of the responses", _validation_loss)
VALIDATION_METRICS = (
    metric("validation_loss_before", "nats per token", _per_token, "lower", over=_BEFORE),
    metric("validation_loss_after", "nats per token", _per_token, "lower", over=_AFTER),
    metric(
        "validation_loss_rise",
        "nats per token",
        Value(
            "validation_loss_after - the lowest loss at any of the steps measured", _validation_rise, (_AFTER, _LOWEST)
        ),
        "lower",
        over=_VALIDATION,
    ),
)
_pairs, _of_pairs = partial(metric, over=_PAIRS), partial(rate, over=_PAIRS, of="pairs")
SFT_METRICS = (*_of_steps("", "nats per token", "tokens that carry loss"), *VALIDATION_METRICS)
DPO_METRICS = (
    *_of_steps("dpo_", "units of the granted loss", "response tokens of both sides"),
    metric("validation_pairs", "items", count, over=Population(_PAIRS.description, output="pairs", may_be_empty=True)),
    _pairs(
        "validation_margin",
        "nats",
        _mean(
            "mean of (chosen after - chosen before) - (rejected after - rejected before), summed log-probabilities",
            _gain,
        ),
        "higher",
    ),
    _of_pairs(
        "validation_accuracy",
        "pairs whose chosen response gained more log-probability than the rejected one",
        lambda pair: _gain(pair) > 0,
        "higher",
    ),
    _of_pairs(
        "validation_ranked_before",
        "pairs whose chosen response had more log-probability a token before training",
        lambda pair: pair.chosen_before / pair.chosen_tokens > pair.rejected_before / pair.rejected_tokens,
    ),
    _of_pairs(
        "validation_ranked_after",
        "pairs whose chosen response has more log-probability a token after training",
        lambda pair: pair.chosen_after / pair.chosen_tokens > pair.rejected_after / pair.rejected_tokens,
        "higher",
    ),
    _pairs(
        "validation_chosen_change",
        "nats per token",
        _mean(
            "mean of (chosen after - chosen before) / tokens of the chosen response",
            lambda pair: (pair.chosen_after - pair.chosen_before) / pair.chosen_tokens,
        ),
        "higher",
    ),
)


_ROLLOUTS = Population("all answers that were trained on", output="rollouts")
_FIRST_ANSWERS = where("answers of the first fifth of the steps (at least 1)", lambda value: value.first, "rollouts")
_LAST_ANSWERS = where("answers of the last fifth of the steps (at least 1)", lambda value: value.last, "rollouts")
_HELD_BACK = Population("prompts of the groups that were kept out of training", output="kept_answers")
"""Where none was kept out the judge has none, and the metrics over them are left out."""


def _reward(value: Any) -> float:
    return value.reward


def _length(value: Any) -> int:
    return len(value.row.answer_ids)


def _is_verified(value: Any) -> bool:
    return value.verified


def online_metrics(prefix: str) -> tuple[RowMetric, ...]:
    """Return the metrics of a kind; ``prefix`` makes their ids its own."""

    def of_rollouts(name: str, unit: str, message: str, better: Any, of: Any) -> tuple[RowMetric, ...]:
        value = Value(message, lambda rows: sum(of(row) for row in rows) / len(rows))
        return (
            metric(f"{prefix}first_{name}", unit, value, better, over=_FIRST_ANSWERS),
            metric(f"{prefix}last_{name}", unit, value, better, over=_LAST_ANSWERS),
        )

    verified = share("answers that the task's verifier accepts", _is_verified, "answers")
    steepest = Value("largest gradient norm before clipping", lambda rows: max(row.row.grad_norm for row in rows))
    return (
        metric(f"{prefix}steps", "optimizer steps", count, over=_STEPS),
        metric(
            f"{prefix}train_tokens",
            "model tokens",
            Value("tokens of answers, summed over steps", lambda rows: sum(row.row.tokens for row in rows)),
            over=_STEPS,
        ),
        metric(f"{prefix}max_grad_norm", "L2 norm", steepest, "lower", over=_STEPS),
        metric(f"{prefix}rollouts", "items", count, over=_ROLLOUTS),
        *of_rollouts("reward", "reward", "mean of the weighted rewards, computed again", "higher", _reward),
        *of_rollouts("length", "model tokens", "mean tokens of an answer", "none", _length),
        metric(f"{prefix}first_verified", "fraction", verified, "higher", over=_FIRST_ANSWERS),
        metric(f"{prefix}last_verified", "fraction", verified, "higher", over=_LAST_ANSWERS),
        rate(
            f"{prefix}ties",
            "answers of groups in which every reward is the same",
            lambda value: value.tied,
            "lower",
            over=_ROLLOUTS,
            of="answers",
        ),
        metric(
            f"{prefix}kept_prompts",
            "items",
            count,
            over=Population(_HELD_BACK.description, output="kept", may_be_empty=True),
        ),
        rate(
            f"{prefix}kept_before",
            "prompts whose answer before training the verifier accepts",
            lambda value: value.before,
            over=_HELD_BACK,
            of="prompts",
        ),
        rate(
            f"{prefix}kept_after",
            "prompts whose answer after training the verifier accepts",
            lambda value: value.after,
            "higher",
            over=_HELD_BACK,
            of="prompts",
        ),
    )
