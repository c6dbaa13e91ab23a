"""The metrics of training.

What says whether training on pairs worked is computed from pairs that were not trained on, and in the same way for
every loss: each response is compared with itself before training. The trainer's own rewards are rows, and no metric.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from specs.stages.row_metric import Over, RowMetric, Value, count, metric, rate, total, where

_STEPS = Over("all optimizer steps, in order")
_FIRST = where("the first fifth of the steps (at least 1)", lambda step: step.first)
_LAST = where("the last fifth of the steps (at least 1)", lambda step: step.last)
_PAIRS = Over("pairs of the groups that were kept out of training", output="scored_pairs")
"""Where no pair was kept out the judge has none, and the metrics over them are left out."""


def _mean(told: str, of: Callable[[Any], float]) -> Value:
    return Value(told, lambda rows: sum(of(row) for row in rows) / len(rows))


def _drop(steps: Sequence[Any]) -> float:
    first, last = ([step.row.loss for step in steps if over.holds(step)] for over in (_FIRST, _LAST))
    return sum(first) / len(first) - sum(last) / len(last)


def _of_steps(prefix: str, unit: str, tokens: str) -> tuple[RowMetric, ...]:
    loss = _mean("mean of the step losses", lambda step: step.row.loss)
    return (
        metric(f"{prefix}steps", unit="optimizer steps", over=_STEPS, value=count),
        metric(
            f"{prefix}train_tokens",
            unit="model tokens",
            over=_STEPS,
            value=total(f"{tokens}, summed over steps", lambda step: step.row.tokens),
        ),
        metric(f"{prefix}first_loss", unit=unit, over=_FIRST, value=loss, better="lower"),
        metric(f"{prefix}last_loss", unit=unit, over=_LAST, value=loss, better="lower"),
        metric(
            f"{prefix}loss_drop",
            unit=unit,
            over=_STEPS,
            value=Value(f"{prefix}first_loss - {prefix}last_loss", _drop, (_FIRST, _LAST)),
            better="higher",
        ),
        metric(
            f"{prefix}max_grad_norm",
            unit="L2 norm",
            over=_STEPS,
            value=Value(
                "largest gradient norm before clipping",
                lambda steps: max(step.row.grad_norm for step in steps),
                (where("have the largest gradient norm", lambda step: step.steepest),),
            ),
            better="lower",
        ),
    )


def _gain(pair: Any) -> float:
    return (pair.chosen_after - pair.chosen_before) - (pair.rejected_after - pair.rejected_before)


SFT_METRICS = _of_steps("", "nats per token", "tokens that carry loss")
DPO_METRICS = (
    *_of_steps("dpo_", "units of the granted loss", "response tokens of both sides"),
    metric("validation_pairs", unit="items", over=Over(_PAIRS.told, output="pairs", may_be_empty=True), value=count),
    metric(
        "validation_margin",
        unit="nats",
        over=_PAIRS,
        value=_mean(
            "mean of (chosen after - chosen before) - (rejected after - rejected before), summed log-probabilities",
            _gain,
        ),
        better="higher",
    ),
    rate(
        "validation_accuracy",
        "pairs whose chosen response gained more log-probability than the rejected one",
        lambda pair: _gain(pair) > 0,
        over=_PAIRS,
        of="pairs",
        better="higher",
    ),
    rate(
        "validation_ranked_before",
        "pairs whose chosen response had more log-probability a token before training",
        lambda pair: pair.chosen_before / pair.chosen_tokens > pair.rejected_before / pair.rejected_tokens,
        over=_PAIRS,
        of="pairs",
    ),
    rate(
        "validation_ranked_after",
        "pairs whose chosen response has more log-probability a token after training",
        lambda pair: pair.chosen_after / pair.chosen_tokens > pair.rejected_after / pair.rejected_tokens,
        over=_PAIRS,
        of="pairs",
        better="higher",
    ),
    metric(
        "validation_chosen_change",
        unit="nats per token",
        over=_PAIRS,
        value=_mean(
            "mean of (chosen after - chosen before) / tokens of the chosen response",
            lambda pair: (pair.chosen_after - pair.chosen_before) / pair.chosen_tokens,
        ),
        better="higher",
    ),
)
