"""Registered thresholds against measured values."""

from __future__ import annotations

from specs.session.session_spec import ResolvedSpec
from specs.stages.metric import MetricSet
from specs.stages.registry import Stage
from specs.stages.stage import Criterion
from specs.trail.verdict import CriterionResult


def criteria_results(resolved: ResolvedSpec, stage: Stage, metrics: MetricSet | None) -> tuple[CriterionResult, ...]:
    """Return the stage's criteria and, at the treatment stage, the registered hypothesis, each with its value.

    A metric that was not measured leaves its criterion unmet with no value: that is missing evidence, not a null.
    """
    results = [_result(criterion, metrics, hypothesis=False) for criterion in stage.gate.criteria]
    analysis = resolved.spec.analysis
    if stage.name == analysis.treatment:
        hypothesis = analysis.hypothesis()
        results += [_result(criterion, metrics, hypothesis=True) for criterion in hypothesis]
    return tuple(results)


def _result(criterion: Criterion, metrics: MetricSet | None, *, hypothesis: bool) -> CriterionResult:
    measured = metrics.metrics.get(criterion.metric) if metrics else None
    if measured is None:
        return CriterionResult(criterion=criterion, value=None, met=False, hypothesis=hypothesis)
    return CriterionResult(
        criterion=criterion,
        value=measured.value,
        counts=measured.counts(),
        met=criterion.met(measured.exact()),
        hypothesis=hypothesis,
    )
