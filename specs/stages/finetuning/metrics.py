"""The metrics of training.

What says whether training on pairs worked is computed from pairs that were not trained on, and in the same way for
every loss: each response is compared with itself before training. The trainer's own rewards are rows, and no metric.
"""

from __future__ import annotations

from specs.stages.metric import MetricDefinition
from specs.stages.metric import defined as _m

_STEPS = "all optimizer steps, in order"
_PAIRS = "pairs of the groups that were kept out of training"

TRAINING_METRICS: tuple[MetricDefinition, ...] = (
    _m("steps", "sft", "optimizer steps", _STEPS, "number of rows", "none"),
    _m("train_tokens", "sft", "model tokens", _STEPS, "tokens that carry loss, summed over steps", "none"),
    _m(
        "first_loss",
        "sft",
        "nats per token",
        "the first fifth of the steps (at least 1)",
        "mean of the step losses",
        "lower",
    ),
    _m(
        "last_loss",
        "sft",
        "nats per token",
        "the last fifth of the steps (at least 1)",
        "mean of the step losses",
        "lower",
    ),
    _m("loss_drop", "sft", "nats per token", _STEPS, "first_loss - last_loss", "higher"),
    _m("max_grad_norm", "sft", "L2 norm", _STEPS, "largest gradient norm before clipping", "lower"),
    _m("dpo_steps", "dpo", "optimizer steps", _STEPS, "number of rows", "none"),
    _m("dpo_train_tokens", "dpo", "model tokens", _STEPS, "response tokens of both sides, summed over steps", "none"),
    _m(
        "dpo_first_loss", "dpo", "units of the granted loss", "the first fifth of the steps (at least 1)",
        "mean of the step losses", "lower",
    ),
    _m(
        "dpo_last_loss", "dpo", "units of the granted loss", "the last fifth of the steps (at least 1)",
        "mean of the step losses", "lower",
    ),
    _m("dpo_loss_drop", "dpo", "units of the granted loss", _STEPS, "dpo_first_loss - dpo_last_loss", "higher"),
    _m("dpo_max_grad_norm", "dpo", "L2 norm", _STEPS, "largest gradient norm before clipping", "lower"),
    _m("validation_pairs", "dpo", "items", _PAIRS, "number of rows", "none"),
    _m(
        "validation_margin", "dpo", "nats", _PAIRS,
        "mean of (chosen after - chosen before) - (rejected after - rejected before), summed log-probabilities",
        "higher",
    ),
    _m(
        "validation_accuracy", "dpo", "fraction", _PAIRS,
        "pairs whose chosen response gained more log-probability than the rejected one / pairs", "higher",
    ),
    _m(
        "validation_ranked_before", "dpo", "fraction", _PAIRS,
        "pairs whose chosen response had more log-probability a token before training / pairs", "none",
    ),
    _m(
        "validation_ranked_after", "dpo", "fraction", _PAIRS,
        "pairs whose chosen response has more log-probability a token after training / pairs", "higher",
    ),
    _m(
        "validation_chosen_change", "dpo", "nats per token", _PAIRS,
        "mean of (chosen after - chosen before) / tokens of the chosen response", "higher",
    ),
)  # fmt: skip
