"""The metrics Peergate can measure: each has a unit, a population and a definition, and belongs to stage kinds.

A criterion binds to a metric *id*, so two numbers that merely share a name ("tokens" counted three ways)
can never meet in one gate. Values are computed in ``reviews/measure.py`` from raw rows only.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Literal, Self

from pydantic import Field, model_validator

from specs.digests import Contract, Digest
from specs.exact import exact
from specs.metric_forms import MetricDefinition, Scope
from specs.metric_forms import defined as _m
from specs.metrics_compared import COMPARED_METRICS
from specs.metrics_critics import CRITIC_METRICS
from specs.metrics_evaluation import EVALUATION_METRICS
from specs.metrics_sampled import SAMPLED_METRICS
from specs.metrics_text import TEXT_METRICS
from specs.metrics_training import TRAINING_METRICS

__all__ = ["METRICS", "Metric", "MetricDefinition", "MetricSet", "Scope", "metrics_of"]


class Metric(Contract):
    """A measured value. ``interval`` is the 95 % interval (low, high) where the definition has one."""

    id: str
    value: float
    n: int
    unit: str
    population: str
    definition: str
    interval: tuple[float, float] | None = None
    ratio: tuple[int, int] | None = Field(default=None, exclude_if=lambda given: given is None)
    """The exact value of what is made of counts, in lowest terms; ``value`` is the float nearest to it."""

    @model_validator(mode="after")
    def _one_value(self) -> Self:
        if self.ratio is not None and (self.ratio[1] < 1 or self.value != self.ratio[0] / self.ratio[1]):
            raise ValueError(f"the ratio {self.ratio[0]} / {self.ratio[1]} is not the value {self.value!r}")
        return self

    def exact(self) -> Fraction:
        """Return the value to compare with a threshold."""
        return exact(self.value) if self.ratio is None else Fraction(*self.ratio)

    def counts(self) -> tuple[int, int] | None:
        """Return how many of the population a fraction is, where it is a number of them."""
        if self.ratio is None or self.unit != "fraction" or self.n < 1 or self.n % self.ratio[1]:
            return None
        return self.ratio[0] * (self.n // self.ratio[1]), self.n


class MetricSet(Contract):
    """Every metric of one attempt, bound to the rows and the code they were computed from."""

    schema_version: Literal[1] = 1
    stage: str
    attempt: int
    rows: dict[str, Digest]
    code: Digest
    metrics: dict[str, Metric]


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
