"""The metrics Peergate can measure: each has a unit, a population and a definition, and belongs to stage kinds.

A criterion binds to a metric *id*, so two numbers that merely share a name ("tokens" counted three ways)
can never meet in one gate. Values are computed in ``reviews/gate/measurer.py`` from raw rows only.
"""

from __future__ import annotations

from specs.stages.critique.metrics import CRITIC_METRICS
from specs.stages.evaluation.metrics import COMPARED_METRICS, EVALUATION_METRICS
from specs.stages.finetuning.metrics import TRAINING_METRICS
from specs.stages.generation.metrics import TEXT_METRICS
from specs.stages.metric import Metric, MetricDefinition, MetricSet, Scope
from specs.stages.metric import defined as _m
from specs.stages.sampling_metrics import SAMPLED_METRICS

__all__ = ["METRICS", "Metric", "MetricDefinition", "MetricSet", "Scope", "metrics_of"]


_SAMPLES = "all sampled completions of the attempt"

_ITEMS = "all registered held-out items, each once"

_STEPS = "all optimizer steps, in order"

_PAIRS = "held-out items answered by both arms"

_KINDS = "constraint kinds of the held-out items"

_PROBES = "the items re-generated from the packaged model"


METRICS: dict[str, MetricDefinition] = {
    definition.id: definition
    for definition in (
        _m("samples", "generate", "completions", _SAMPLES, "number of rows", "none"),
        _m(
            "accepted",
            "generate",
            "completions",
            _SAMPLES,
            "distinct (prompt, completion) that end by themselves and that the verifier accepts",
            "higher",
        ),
        _m(
            "acceptance_rate",
            "generate",
            "fraction",
            _SAMPLES,
            "rows that end by themselves and that the verifier accepts / rows",
            "higher",
        ),
        _m(
            "accepted_kinds", "generate", "kinds", _SAMPLES, "constraint kinds with at least one accepted row", "higher"
        ),
        _m(
            "accepted_min_kind",
            "generate",
            "completions",
            _SAMPLES,
            "accepted rows of the rarest constraint kind of the prompts",
            "higher",
        ),
        _m(
            "generate_truncation_rate",
            "generate",
            "fraction",
            _SAMPLES,
            "rows that hit the token limit / rows",
            "lower",
        ),
        _m(
            "duplicate_rate",
            "generate",
            "fraction",
            "verifier-accepted rows",
            "1 - distinct (prompt, completion) / verifier-accepted rows",
            "lower",
        ),
        _m(
            "accuracy",
            "evaluate",
            "fraction",
            _ITEMS,
            "items whose output the registered verifier accepts / items",
            "higher",
        ),
        _m("items", "evaluate", "items", _ITEMS, "number of rows", "none"),
        _m("truncation_rate", "evaluate", "fraction", _ITEMS, "outputs that hit the token limit / items", "lower"),
        _m("empty_rate", "evaluate", "fraction", _ITEMS, "outputs with no visible character / items", "lower"),
        _m(
            "mean_output_tokens",
            "evaluate",
            "model tokens",
            _ITEMS,
            "mean length of the output, end token not counted",
            "none",
        ),
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
        _m(
            "accuracy_gain",
            "comparison",
            "fraction",
            _PAIRS,
            "treatment accuracy - baseline accuracy (positive = treatment better)",
            "higher",
        ),
        _m(
            "mcnemar_p",
            "comparison",
            "probability",
            _PAIRS,
            "exact two-sided McNemar p on the discordant pairs",
            "lower",
        ),
        _m("gained", "comparison", "items", _PAIRS, "baseline wrong, treatment right", "higher"),
        _m("lost", "comparison", "items", _PAIRS, "baseline right, treatment wrong", "lower"),
        _m(
            "cohens_h",
            "comparison",
            "radians",
            _PAIRS,
            "2 asin(sqrt(p_treatment)) - 2 asin(sqrt(p_baseline))",
            "higher",
        ),
        _m(
            "kinds_gained",
            "comparison",
            "kinds",
            _KINDS,
            "kinds with a gain: exact McNemar p of the kind, adjusted over the kinds (Benjamini-Hochberg), below alpha",
            "higher",
        ),
        _m(
            "kinds_lost",
            "comparison",
            "kinds",
            _KINDS,
            "kinds that got worse: exact McNemar p of the kind, adjusted over the kinds (Benjamini-Hochberg), below alpha",
            "lower",
        ),
        _m(
            "identical_outputs",
            "package",
            "fraction",
            _PROBES,
            "outputs equal, token for token, to the checkpoint's / items",
            "higher",
        ),
        _m("probes", "package", "items", _PROBES, "number of rows", "none"),
        *TEXT_METRICS,
        *TRAINING_METRICS,
        *CRITIC_METRICS,
        *SAMPLED_METRICS,
        *EVALUATION_METRICS,
        *COMPARED_METRICS,
    )
}


def metrics_of(scope: Scope) -> list[str]:
    """Return the ids measured for a stage kind (or for the comparison)."""
    return [id for id, definition in METRICS.items() if definition.scope == scope]
