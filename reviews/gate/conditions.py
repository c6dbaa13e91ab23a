"""Conditions of approvals, each open until it is met or a person waives it, and the checks that a person lifted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from reviews.evidence.gather import is_in_force
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.retractions import standing
from specs.session.design import ResolvedDesign
from specs.stages.base.metric import Metric, MetricSet
from specs.stages.metric_catalog import METRICS
from specs.stages.registry import Stage
from specs.trail.verdict import Condition, ConditionResult


class Obligation(NamedTuple):
    """A condition that an approval carried over."""

    id: str
    condition: Condition
    made: int
    """Number of the entry that put it in force: only what is measured after it can meet it."""
    state: Literal["open", "met", "waived"]
    settled_by: str
    """Key of the entry that settled it; empty while it is open."""


def obligations(entries: Sequence[RecordedEntry], moment_ns: int) -> list[Obligation]:
    """Return every obligation in force at a moment (nanoseconds since 1970)."""
    remaining = standing(entries)
    by_digest = {value.digest: value for value in remaining}
    offered: dict[str, tuple[int, dict[str, Any]]] = {}
    settled: dict[str, tuple[Literal["met", "waived"], str]] = {}
    for value in remaining:
        if value.kind == "decision" and value.raw.get("outcome") == "approve":
            offered |= {each["id"]: (value.seq, each) for each in value.raw.get("conditions", ())}
            settled |= dict.fromkeys(value.raw.get("met", ()), ("met", value.key))
        elif is_in_force(value):
            offered |= {each["id"]: (value.seq, each) for each in value.raw["conditions"]}
        elif value.kind == "human" and value.raw.get("answer") == "approve":
            request = by_digest.get(value.raw["asked"])
            over = request.raw.get("conditions", ()) if request else ()
            offered |= {each["id"]: (value.seq, each) for each in over}
            settled |= dict.fromkeys(value.raw.get("waives", ()), ("waived", value.key))
    settled |= {
        value.raw["condition"]: ("waived", value.key)
        for value in remaining
        if value.kind == "override" and value.raw["condition"] is not None and in_force(value, moment_ns)
    }
    return [
        Obligation(
            id,
            Condition.model_validate({name: value for name, value in body.items() if name != "id"}),
            made,
            *settled.get(id, ("open", "")),
        )
        for id, (made, body) in offered.items()
    ]


def in_force(override: RecordedEntry, moment_ns: int) -> bool:
    """Return whether an override has not ended at a moment, given in nanoseconds since 1970."""
    expires = override.raw.get("expires")
    return expires is None or moment_ns <= expires * 1e9


def lifted_checks(entries: Sequence[RecordedEntry], stage: str, moment_ns: int) -> dict[str, str]:
    """Return the checks that are lifted for a stage at a moment, each with the person and the reason."""
    lifting = [entry for entry in entries if entry.kind == "override" and in_force(entry, moment_ns)]
    return {
        value.raw["check"]: f"{value.raw['by']}: {value.raw['reason']}"
        for value in lifting
        if value.raw["check"] is not None and value.raw["stage"] == stage
    }


def open_for(
    entries: Sequence[RecordedEntry], resolved: ResolvedDesign, stage: str, moment_ns: int
) -> list[Obligation]:
    """Return the open obligations that keep a stage from starting."""
    order = [stage.name for stage in resolved.spec.stages]
    at = order.index(stage)
    return [
        obligation
        for obligation in obligations(entries, moment_ns)
        if obligation.state == "open" and order.index(obligation.condition.stage) <= at
    ]


def condition_results(
    entries: Sequence[RecordedEntry],
    resolved: ResolvedDesign,
    stage: Stage,
    metrics: MetricSet | None,
    earlier: Mapping[str, MetricSet],
    moment_ns: int,
) -> tuple[ConditionResult, ...]:
    """Compare the open conditions with the newest values measured since each was made.

    ``entries`` is the trail up to the packet, ``metrics`` are those of the attempt that ``stage`` judges, ``earlier``
    those of accepted stages; ``moment_ns`` matters for waivers that end.
    """
    order = [stage.name for stage in resolved.spec.stages]
    opens = order.index(stage.name) + 1
    results: list[ConditionResult] = []
    for obligation in [obligation for obligation in obligations(entries, moment_ns) if obligation.state == "open"]:
        measured, criterion = _measured_since(entries, obligation, metrics, earlier), obligation.condition.criterion
        results.append(
            ConditionResult(
                id=obligation.id,
                condition=obligation.condition,
                due=order.index(obligation.condition.stage) <= opens,
                value=measured.value if measured else None,
                counts=measured.counts() if measured else None,
                met=criterion is not None and measured is not None and criterion.met(measured.exact()),
            )
        )
    return tuple(results)


def _measured_since(
    entries: Sequence[RecordedEntry],
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
    newest, result = obligation.made, None
    for recorded in entries:
        if recorded.kind != "metrics" or recorded.seq <= newest:
            continue
        accepted = earlier.get(recorded.raw["stage"])
        if accepted and accepted.attempt == recorded.raw["attempt"] and criterion.metric in accepted.metrics:
            newest, result = recorded.seq, accepted.metrics[criterion.metric]
    return result


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
        return f"there is no metric '{condition.criterion.metric}'"
    between = resolved.spec.stages[at + 1 : order.index(condition.stage)]
    treatment = resolved.spec.analysis.treatment
    if not any(metric.scope in (stage.kind, "comparison" if stage.name == treatment else "") for stage in between):
        return f"no stage between measures '{metric.id}' before '{condition.stage}' starts"
    return ""
