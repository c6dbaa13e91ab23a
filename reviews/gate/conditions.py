"""Conditions of approvals at a gate: which keep a stage closed, and which are met by what was measured."""

from __future__ import annotations

from collections.abc import Mapping

from reviews.history.people import Obligation, obligations
from reviews.history.recorded_history import RecordedHistory
from specs.session.design import ResolvedDesign
from specs.stages.base.metric import Metric, MetricSet
from specs.stages.metric_catalog import METRICS
from specs.stages.registry import Stage
from specs.trail.gate_bodies import MetricsEntry
from specs.trail.verdict import Condition, ConditionResult


def open_for(history: RecordedHistory, resolved: ResolvedDesign, stage: str, moment_ns: int) -> list[Obligation]:
    """Return the open obligations that keep a stage from starting."""
    order = [stage.name for stage in resolved.spec.stages]
    at = order.index(stage)
    return [
        obligation
        for obligation in obligations(history, moment_ns)
        if obligation.state == "open" and order.index(obligation.condition.stage) <= at
    ]


def condition_results(
    history: RecordedHistory,
    resolved: ResolvedDesign,
    stage: Stage,
    metrics: MetricSet | None,
    earlier: Mapping[str, MetricSet],
    moment_ns: int,
) -> tuple[ConditionResult, ...]:
    """Compare the open conditions with the newest values measured since each was made.

    ``history`` is the trail up to the packet, ``metrics`` are those of the attempt that ``stage`` judges, ``earlier``
    those of accepted stages; ``moment_ns`` matters for waivers that end.
    """
    order = [stage.name for stage in resolved.spec.stages]
    opens = order.index(stage.name) + 1
    results: list[ConditionResult] = []
    for obligation in obligations(history, moment_ns):
        if obligation.state != "open":
            continue
        measured, criterion = _measured_since(history, obligation, metrics, earlier), obligation.condition.criterion
        results.append(
            ConditionResult(
                id=obligation.id,
                condition=obligation.condition,
                is_due=order.index(obligation.condition.stage) <= opens,
                value=measured.value if measured else None,
                counts=measured.counts() if measured else None,
                met=criterion is not None and measured is not None and criterion.met(measured.exact()),
            )
        )
    return tuple(results)


def _measured_since(
    history: RecordedHistory,
    obligation: Obligation,
    metrics: MetricSet | None,
    earlier: Mapping[str, MetricSet],
) -> Metric | None:
    """Return the condition's metric as it was last measured after the condition was made."""
    criterion = obligation.condition.criterion
    if criterion is None:
        return None
    if metrics is not None and criterion.metric in metrics.metrics:
        return metrics.metrics[criterion.metric]
    for entry in reversed(history.of(MetricsEntry)):
        accepted = earlier.get(entry.body.stage)
        if accepted and accepted.attempt == entry.body.attempt and criterion.metric in accepted.metrics:
            return accepted.metrics[criterion.metric] if entry.seq > obligation.made else None
    return None


def why_not_carried(resolved: ResolvedDesign, stage: str | None, condition: Condition) -> str:
    """Return why an approval of a stage cannot carry a condition; empty when it can. None is the design gate."""
    order = [stage.name for stage in resolved.spec.stages]
    at = -1 if stage is None else order.index(stage)
    if condition.stage not in order[at + 1 :]:
        return f"no later stage is called '{condition.stage}'"
    if condition.criterion is None:
        return ""
    metric = METRICS.get(condition.criterion.metric)
    if metric is None:
        return f"unknown metric '{condition.criterion.metric}'"
    between = resolved.spec.stages[at + 1 : order.index(condition.stage)]
    treatment = resolved.spec.analysis.treatment
    if not any(metric.scope in (stage.kind, "comparison" if stage.name == treatment else "") for stage in between):
        return f"no stage between measures '{metric.id}' before '{condition.stage}' starts"
    return ""
