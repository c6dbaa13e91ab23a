"""The embedded reviewer: findings that follow from checks and criteria, without a model.

If a parameter inside its allowed range would fix an unmet criterion, it names the change.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from specs.trail.verdict import (
    CLOSED,
    CheckResult,
    ConditionResult,
    CriterionResult,
    Finding,
    Packet,
    RequiredChange,
    Severity,
    Span,
    Verdict,
)

NOT_JUDGED = (
    "whether the answers are true, useful or well written: only their form is verified",
    "whether code and checks do what their names say",
    "whether the objective is worth the money, and whether the result carries over to other prompts and models",
    "whether held-out items paraphrase training items in other words",
)


FOR_A_PERSON = RequiredChange(text="no rule names a change that would fix this; a person must look")
"""Without any change a finding would say that nothing can fix it."""


class ParameterRemedy(NamedTuple):
    """A parameter that moves a metric, and the way to move it."""

    parameter: str
    up: bool


REMEDIES: dict[str, ParameterRemedy] = {
    "accepted": ParameterRemedy("samples_per_prompt", up=True),
    "accepted_kinds": ParameterRemedy("samples_per_prompt", up=True),
    "accepted_min_kind": ParameterRemedy("samples_per_prompt", up=True),
    "acceptance_rate": ParameterRemedy("temperature", up=False),
    "duplicate_rate": ParameterRemedy("temperature", up=True),
    "generate_truncation_rate": ParameterRemedy("max_new_tokens", up=True),
    "loss_drop": ParameterRemedy("learning_rate", up=True),
    "max_grad_norm": ParameterRemedy("learning_rate", up=False),
}
_RATIO_SCALED = ("learning_rate",)


class Checklist:
    """A deterministic :class:`reviews.gate.reviewer.PacketReviewer`."""

    name = "checklist"

    def review(self, packet: Packet, packet_digest: str) -> Verdict:
        """Turn failed checks and unmet criteria into findings; approve when none of them blocks."""
        checks = [pair for pair in enumerate(packet.checks) if pair[1].status in CLOSED or pair[1].status == "WARN"]
        criteria = [pair for pair in enumerate(packet.criteria) if not pair[1].met]
        conditions = [pair for pair in enumerate(packet.conditions) if pair[1].is_due and not pair[1].met]
        findings = [
            *(
                _of_check(packet_digest, index, check_result, lifted=check_result.id in packet.lifted)
                for index, check_result in checks
            ),
            *(_of_criterion(packet, packet_digest, index, criterion_result) for index, criterion_result in criteria),
            *(_of_condition(packet, packet_digest, index, condition_result) for index, condition_result in conditions),
        ]
        blocking = sum(finding.severity == "blocking" for finding in findings)
        return Verdict(
            reviewer=self.name,
            findings=tuple(findings),
            recommendation="continue" if not blocking else "do not continue before the blocking findings are settled",
            reasoning=f"{len(packet.checks)} checks and {len(packet.criteria)} criteria were read; {blocking} block.",
            risks=tuple(check.detail for check in packet.checks if check.status == "WARN"),
            approve=not blocking,
            not_judged=NOT_JUDGED,
        )


def _of_check(packet_digest: str, index: int, check: CheckResult, *, lifted: bool) -> Finding:
    severity: Severity = "blocking" if check.closes and not lifted else "minor"
    statement = f"{check.title}: {check.status}. {check.detail}"
    span = Span(artifact=packet_digest, pointer=f"/checks/{index}", quote=check.id)
    change = check.required_change or (FOR_A_PERSON if check.repairable else None)
    return _finding(f"check-{check.id}", severity, statement, span, change)


def _of_criterion(packet: Packet, packet_digest: str, index: int, result: CriterionResult) -> Finding:
    metric, measured = result.criterion.metric, result.value is not None
    value = f"is {result.describe_measurement()}" if measured else "was not measured"
    severity: Severity = "note" if result.hypothesis and measured else "blocking"
    statement = f"registered is {result.criterion}; {metric} {value}"
    span = Span(artifact=packet_digest, pointer=f"/criteria/{index}", quote=metric)
    change = (_change(packet, metric) if measured else None) or FOR_A_PERSON
    return _finding(f"criterion-{index}", severity, statement, span, change)


def _of_condition(packet: Packet, packet_digest: str, index: int, result: ConditionResult) -> Finding:
    criterion = result.condition.criterion
    change = _change(packet, criterion.metric) if criterion is not None and result.value is not None else None
    statement = f"an earlier approval set the condition: {result.condition.text}"
    span = Span(artifact=packet_digest, pointer=f"/conditions/{index}", quote=result.id)
    return _finding(f"condition-{index}", "blocking", statement, span, change or FOR_A_PERSON)


def _finding(id: str, severity: Severity, statement: str, span: Span, change: RequiredChange | None) -> Finding:
    return Finding(id=id, severity=severity, statement=statement, evidence=(span,), required_change=change)


def _change(packet: Packet, metric: str) -> RequiredChange | None:
    """Return a move half of the way to the end of the allowed range, or None at that end."""
    remedy = REMEDIES.get(metric)
    if remedy is None or remedy.parameter not in packet.allowed_ranges:
        return None
    low, high = packet.allowed_ranges[remedy.parameter]
    current, end = packet.granted_parameters.get(remedy.parameter), high if remedy.up else low
    if isinstance(current, bool) or not isinstance(current, int | float):
        return None
    if current >= end if remedy.up else current <= end:
        return None
    value: float | int
    if isinstance(current, int):
        value = math.ceil((current + end) / 2) if remedy.up else math.floor((current + end) / 2)
        value = int(min(max(value, low), high))
    elif remedy.parameter in _RATIO_SCALED and min(current, end) > 0:
        value = math.sqrt(current * end)
    else:
        value = (current + end) / 2
    direction = "raise" if remedy.up else "lower"
    text = f"{direction} {remedy.parameter} from {current:g} to {value:g}"
    return RequiredChange(text=text, parameter=remedy.parameter, value=value)
