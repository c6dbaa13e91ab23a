"""Conditions of approvals, each open until it is met or a person waives it, and the checks that a person lifted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from reviews.evidence.gather import is_in_force
from reviews.trail.envelope import Recorded
from reviews.trail.retractions import standing
from specs.session.session_spec import ResolvedSpec
from specs.stages.metric import Metric, MetricSet
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


def obligations(entries: Sequence[Recorded], moment_ns: int) -> list[Obligation]:
    """Return every obligation in force at a moment (nanoseconds since 1970)."""
    kept = standing(entries)
    by_digest = {one.digest: one for one in kept}
    offered: dict[str, tuple[int, dict[str, Any]]] = {}
    settled: dict[str, tuple[Literal["met", "waived"], str]] = {}
    for one in kept:
        if one.entry.kind == "decision" and one.body.get("outcome") == "approve":
            offered |= {each["id"]: (one.entry.seq, each) for each in one.body.get("conditions", ())}
            settled |= dict.fromkeys(one.body.get("met", ()), ("met", one.entry.key))
        elif is_in_force(one):
            offered |= {each["id"]: (one.entry.seq, each) for each in one.body["conditions"]}
        elif one.entry.kind == "human" and one.body.get("answer") == "approve":
            asked = by_digest.get(one.body["asked"])
            over = asked.body.get("conditions", ()) if asked else ()
            offered |= {each["id"]: (one.entry.seq, each) for each in over}
            settled |= dict.fromkeys(one.body.get("waives", ()), ("waived", one.entry.key))
    settled |= {
        one.body["condition"]: ("waived", one.entry.key)
        for one in kept
        if one.entry.kind == "override" and one.body["condition"] is not None and in_force(one, moment_ns)
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


def in_force(override: Recorded, moment_ns: int) -> bool:
    """Say whether an override has not ended at a moment, given in nanoseconds since 1970."""
    expires = override.body.get("expires")
    return expires is None or moment_ns <= expires * 1e9


def lifted_checks(entries: Sequence[Recorded], stage: str, moment_ns: int) -> dict[str, str]:
    """Return the checks that are lifted for a stage at a moment, each with the person and the reason."""
    lifting = [one for one in entries if one.entry.kind == "override" and in_force(one, moment_ns)]
    return {
        one.body["check"]: f"{one.body['by']}: {one.body['reason']}"
        for one in lifting
        if one.body["check"] is not None and one.body["stage"] == stage
    }


def open_for(entries: Sequence[Recorded], resolved: ResolvedSpec, stage: str, moment_ns: int) -> list[Obligation]:
    """Return the open obligations that keep a stage from starting."""
    order = [one.name for one in resolved.spec.stages]
    at = order.index(stage)
    return [
        one for one in obligations(entries, moment_ns) if one.state == "open" and order.index(one.condition.stage) <= at
    ]


def condition_results(
    entries: Sequence[Recorded],
    resolved: ResolvedSpec,
    stage: Stage,
    metrics: MetricSet | None,
    earlier: Mapping[str, MetricSet],
    moment_ns: int,
) -> tuple[ConditionResult, ...]:
    """Compare the open conditions with the newest values measured since each was made.

    ``entries`` is the trail up to the packet, ``metrics`` are those of the attempt that ``stage`` judges, ``earlier``
    those of accepted stages; ``moment_ns`` matters for waivers that end.
    """
    order = [one.name for one in resolved.spec.stages]
    opens = order.index(stage.name) + 1
    found: list[ConditionResult] = []
    for one in [one for one in obligations(entries, moment_ns) if one.state == "open"]:
        measured, criterion = _measured_since(entries, one, metrics, earlier), one.condition.criterion
        found.append(
            ConditionResult(
                id=one.id,
                condition=one.condition,
                due=order.index(one.condition.stage) <= opens,
                value=measured.value if measured else None,
                counts=measured.counts() if measured else None,
                met=criterion is not None and measured is not None and criterion.met(measured.exact()),
            )
        )
    return tuple(found)


def _measured_since(
    entries: Sequence[Recorded], one: Obligation, metrics: MetricSet | None, earlier: Mapping[str, MetricSet]
) -> Metric | None:
    """Return the condition's metric as it was last measured after the condition was made."""
    criterion = one.condition.criterion
    if criterion is None:
        return None
    if metrics is not None and criterion.metric in metrics.metrics:
        return metrics.metrics[criterion.metric]
    newest, found = one.made, None
    for recorded in entries:
        if recorded.entry.kind != "metrics" or recorded.entry.seq <= newest:
            continue
        accepted = earlier.get(recorded.body["stage"])
        if accepted and accepted.attempt == recorded.body["attempt"] and criterion.metric in accepted.metrics:
            newest, found = recorded.entry.seq, accepted.metrics[criterion.metric]
    return found


def why_not_carried(resolved: ResolvedSpec, stage: str | None, condition: Condition) -> str:
    """Say why an approval of a stage cannot carry a condition; empty when it can. None is the design gate."""
    order = [one.name for one in resolved.spec.stages]
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
    if not any(metric.scope in (one.kind, "comparison" if one.name == treatment else "") for one in between):
        return f"no stage between measures '{metric.id}' before '{condition.stage}' starts"
    return ""
