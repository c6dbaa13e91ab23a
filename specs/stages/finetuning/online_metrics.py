"""The metrics of training on rollouts: every answer is judged again, and so are those to prompts kept out."""

from __future__ import annotations

from typing import Any

from specs.stages.base.row_metric import Population, RowMetric, Value, count, metric, rate, share, where

_STEPS = Population("all optimizer steps, in order")
_ROLLOUTS = Population("all answers that were trained on", output="rollouts")
_FIRST = where("answers of the first fifth of the steps (at least 1)", lambda value: value.first, "rollouts")
_LAST = where("answers of the last fifth of the steps (at least 1)", lambda value: value.last, "rollouts")
_KEPT = Population("prompts of the groups that were kept out of training", output="kept_answers")
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
            metric(f"{prefix}first_{name}", unit, value, better, over=_FIRST),
            metric(f"{prefix}last_{name}", unit, value, better, over=_LAST),
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
        metric(f"{prefix}first_verified", "fraction", verified, "higher", over=_FIRST),
        metric(f"{prefix}last_verified", "fraction", verified, "higher", over=_LAST),
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
            over=Population(_KEPT.description, output="kept", may_be_empty=True),
        ),
        rate(
            f"{prefix}kept_before",
            "prompts whose answer before training the verifier accepts",
            lambda value: value.before,
            over=_KEPT,
            of="prompts",
        ),
        rate(
            f"{prefix}kept_after",
            "prompts whose answer after training the verifier accepts",
            lambda value: value.after,
            "higher",
            over=_KEPT,
            of="prompts",
        ),
    )
