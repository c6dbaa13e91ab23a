"""The gate's decision: a pure function of checks, criteria, findings and where their spans point.

The worst rule that applies wins: approve < null < revise < escalate < reject. No score and no prose is read. A reviewer
can close the gate with evidence and cannot open it over a failed check; a person can, by lifting the check beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reviews.gate.panel import disagree
from specs.stages.base.stage import ParameterRange
from specs.stages.metric_catalog import METRICS
from specs.system.digests import Digest
from specs.system.text import one_line
from specs.trail.verdict import (
    CheckResult,
    Condition,
    ConditionResult,
    CriterionResult,
    Decision,
    Finding,
    NoVerdict,
    RequiredChange,
    Span,
    Verdict,
    Vote,
)

JOB_EXIT = "jobs.exit"
REASON_CHARACTERS = 500
HELP_CHARACTERS = 150


@dataclass
class _Blocker:
    """One thing that keeps the gate closed, and the changes named to fix it."""

    reason: str
    place: str = ""
    """JSON pointer into the packet, if it is a check, criterion or condition."""
    changes: list[RequiredChange] = field(default_factory=list[RequiredChange])
    hopeless: bool = False
    """No parameter can fix it: the data or the design itself is wrong."""
    for_a_person: bool = False
    """Evidence is missing, which no change fixes. What has no change at all goes to a person anyway."""
    lacks_evidence: bool = False
    """It is missing because the job did not exit normally, which is then the only reason to report."""


class _FindingSpans:
    """The findings of a verdict whose spans point at something in the packet."""

    def __init__(self, verdict: Verdict, resolvable: Callable[[Span], bool]) -> None:
        self.spans = {
            id(finding): [span for span in finding.evidence if resolvable(span)] for finding in verdict.findings
        }
        self.nowhere = [finding for finding in verdict.findings if not self.spans[id(finding)]]
        self.blocking = [
            finding for finding in verdict.findings if finding.severity == "blocking" and self.spans[id(finding)]
        ]

    def repeats(self, finding: Finding, places: tuple[str, ...]) -> bool:
        """Return whether a finding points only at some places, which block by themselves, or below them."""
        return all(_is_below(span, places) for span in self.spans[id(finding)])

    def changes_at(self, place: str) -> list[RequiredChange]:
        """Return the changes of the blocking findings that point at a place or below it."""
        findings = [
            finding
            for finding in self.blocking
            if any(_is_below(span, (f"{place}/",)) for span in self.spans[id(finding)])
        ]
        return [finding.required_change for finding in findings if finding.required_change]


def _is_below(span: Span, places: tuple[str, ...]) -> bool:
    return span.pointer is not None and f"{span.pointer}/".startswith(places)


def decide(
    *,
    stage: str,
    attempt: int,
    checks: tuple[CheckResult, ...],
    criteria: tuple[CriterionResult, ...],
    verdict: Verdict,
    packet_digest: Digest,
    resolvable: Callable[[Span], bool],
    allowed_ranges: Mapping[str, ParameterRange],
    current: Mapping[str, Any],
    attempts_left: int,
    conditions: tuple[ConditionResult, ...] = (),
    lifted: Mapping[str, str] | None = None,
    why_not_carried: Callable[[Condition], str] = lambda _: "",
    unchanged_since: int | None = None,
    takes_words: bool = False,
    withdrawn: str = "",
) -> Decision:
    """Decide whether the next stage may run.

    Checks, criteria and the open conditions of earlier approvals are in the order of the packet: spans point at them by
    index. ``lifted`` names the checks that a person has lifted, with who and why. ``why_not_carried`` says why a
    condition of this verdict cannot be carried to a later stage; empty when it can. ``unchanged_since`` is an earlier
    attempt with the same evidence. ``takes_words`` says whether a builder can move anything at this stage, so that a
    change in words can be its task. ``withdrawn`` is why it ended the job itself.
    """
    lifted = lifted or {}
    pointed = _FindingSpans(verdict, resolvable)
    floor = [
        *_check_blockers(checks, lifted, pointed),
        *_criterion_blockers(criteria, pointed),
        *_condition_blockers(conditions, pointed),
    ]
    raised = tuple(f"/checks/{index}/" for index, check in enumerate(checks) if check.id in lifted)
    blockers = [
        *floor,
        *_finding_blockers(verdict, pointed, tuple(f"{blocker.place}/" for blocker in floor), raised),
        *_reviewer_blockers(verdict, pointed, why_not_carried),
    ]
    silent = [_silence(verdict.reviewer, verdict.no_verdict)] if verdict.no_verdict else []
    if silent and (verdict.votes or not floor):
        blockers.append(_Blocker(silent.pop()))
    elif not verdict.approve and not blockers:
        text = f"{verdict.reviewer} does not approve and cites nothing that blocks"
        blockers.append(_Blocker(_line(text)))

    if withdrawn:
        # Rows, metrics and verdict are missing because of it, which does not call for a person.
        task = RequiredChange(text=f"the builder ended this job: {withdrawn}", by_builder=True)
        blockers, silent = [_Blocker(_line(task.text), changes=[task])], []
    usable = {
        id(blocker): [change for change in blocker.changes if _usable(change, allowed_ranges, current, takes_words)]
        for blocker in blockers
    }
    changes = _distinct([required_change for blocker in blockers for required_change in usable[id(blocker)]])
    reasons = [*_root_causes(blockers), *silent]
    if any(blocker.hopeless for blocker in blockers):
        outcome = "reject"
    elif any(blocker.for_a_person or not usable[id(blocker)] for blocker in blockers):
        outcome = "escalate"
    elif len(moved := [change.parameter for change in changes if change.parameter]) > len(set(moved)):
        outcome = "escalate"
        reasons.append("the required changes contradict each other")
    elif blockers and unchanged_since is not None:
        outcome = "escalate"
        reasons.append(f"the evidence is that of attempt {unchanged_since}: another attempt like it changes nothing")
    elif blockers and attempts_left <= 0:
        outcome = "escalate"
        reasons.append("no attempt is left for the required change")
    elif blockers:
        outcome = "revise"
    elif unmet := [criterion for criterion in criteria if not criterion.met]:
        outcome = "null"
        reasons = [f"{_describe_unmet(criterion_result)}: {criterion_result.unmet()}" for criterion_result in unmet]
    else:
        outcome = "approve"
        applied = sum(check.status != "NOT_APPLICABLE" for check in checks)
        met = (
            f", and every criterion is met ({', '.join(str(criterion.criterion) for criterion in criteria)})"
            if criteria
            else ""
        )
        reasons = [
            f"none of {applied} checks closes the gate{met}",
            *(
                _describe_lifted_check(check, lifted[check.id])
                for check in checks
                if check.id in lifted and check.closes
            ),
            *(_line(_dissent(vote)) for vote in verdict.votes if not vote.approve),
            *(
                _line(f"on the condition that before {condition.stage}: {condition.text}")
                for condition in verdict.conditions
            ),
        ]
    return Decision(
        stage=stage,
        attempt=attempt,
        outcome=outcome,
        reasons=tuple(reasons),
        required_changes=tuple(changes),
        dropped_findings=len(pointed.nowhere),
        conditions=tuple(condition for condition in verdict.conditions if not why_not_carried(condition)),
        met=tuple(condition.id for condition in conditions if condition.is_due and condition.met),
        packet=packet_digest,
        verdict=verdict.content_digest(),
    )


def _root_causes(blockers: list[_Blocker]) -> list[str]:
    """Return the reasons, with one line for all evidence that is missing because the job did not exit normally."""
    reasons = [blocker.reason for blocker in blockers if not blocker.lacks_evidence]
    missing = [blocker.reason for blocker in blockers if blocker.lacks_evidence]
    if len(missing) > 1 and any(reason.startswith(f"check {JOB_EXIT} is FAIL") for reason in reasons):
        missing = [f"{len(missing)} checks and criteria have no evidence, because the job did not exit normally"]
    return reasons + missing


def _finding_blockers(
    verdict: Verdict, pointed: _FindingSpans, floor: tuple[str, ...], raised: tuple[str, ...]
) -> list[_Blocker]:
    """Return what the reviewer's blocking findings add to the floor; what a person has lifted adds nothing.

    A finding without a change says that nothing would fix it, which is more than a failed check says. Where reviewers
    disagree, a person decides instead.
    """
    blockers: list[_Blocker] = []
    for finding in pointed.blocking:
        hopeless = finding.required_change is None and not disagree(verdict)
        if not pointed.repeats(finding, raised) and (hopeless or not pointed.repeats(finding, floor + raised)):
            changes = [finding.required_change] if finding.required_change else []
            blockers.append(_Blocker(_describe_finding(verdict, finding), changes=changes, hopeless=hopeless))
    return blockers


def _describe_lifted_check(check: CheckResult, by: str) -> str:
    return _line(f"check {check.id} is {check.status}, lifted by {by}")


def _check_blockers(
    checks: tuple[CheckResult, ...], lifted: Mapping[str, str], pointed: _FindingSpans
) -> list[_Blocker]:
    return [
        _Blocker(
            _line(f"check {check.id} is {check.status}{_describe_due_defect(check)}: {check.detail}"),
            f"/checks/{index}",
            [*([check.required_change] if check.required_change else []), *pointed.changes_at(f"/checks/{index}")],
            hopeless=check.status == "FAIL" and not check.repairable,
            for_a_person=check.status not in ("FAIL", "WARN"),
            lacks_evidence=check.status == "BLOCKED",
        )
        for index, check in enumerate(checks)
        if check.closes and check.id not in lifted
    ]


def _describe_due_defect(check: CheckResult) -> str:
    return f" and must pass because of {check.scheduled_by}" if check.status == "WARN" else ""


def _criterion_blockers(criteria: tuple[CriterionResult, ...], pointed: _FindingSpans) -> list[_Blocker]:
    blockers: list[_Blocker] = []
    for index, result in enumerate(criteria):
        place = f"/criteria/{index}"
        if result.value is None:
            blockers.append(_Blocker(f"{result.criterion} was not measured", place, lacks_evidence=True))
        elif not result.met and not result.hypothesis:
            blockers.append(_Blocker(result.unmet(), place, pointed.changes_at(place)))
    return blockers


def _condition_blockers(conditions: tuple[ConditionResult, ...], pointed: _FindingSpans) -> list[_Blocker]:
    """Return the conditions of earlier approvals that are due here and not met."""
    blockers: list[_Blocker] = []
    for index, result in enumerate(conditions):
        if not result.is_due or result.met:
            continue
        place, criterion = f"/conditions/{index}", result.condition.criterion
        message = _line(f"condition {result.id}: {result.condition.text}")
        if criterion is None:
            blockers.append(_Blocker(f"{message} (only a person can settle it)", place))
        elif result.value is None:
            blockers.append(_Blocker(f"{message} ({criterion} was not measured since)", place))
        else:
            reason = f"{message} ({criterion} is not met: {result.describe_measurement()})"
            blockers.append(_Blocker(reason, place, pointed.changes_at(place)))
    return blockers


def _reviewer_blockers(
    verdict: Verdict, pointed: _FindingSpans, why_not_carried: Callable[[Condition], str]
) -> list[_Blocker]:
    """Return what only a person can settle about the verdict itself."""
    reasons: list[str] = []
    if disagree(verdict) and any(finding.severity == "blocking" for finding in verdict.findings):
        voted = [vote for vote in verdict.votes if vote.approve is not None]
        sides = ", ".join(f"{vote.reviewer} {'approves' if vote.approve else 'does not'}" for vote in voted)
        reasons.append(_line(f"the reviewers disagree: {sides}"))
    blocking = [finding for finding in pointed.nowhere if finding.severity == "blocking"]
    reasons += [f"{_describe_finding(verdict, finding)} (points at nothing in the packet)" for finding in blocking]
    for condition in verdict.conditions:
        # Dropping a condition that cannot be carried would turn it into an approval without conditions.
        if problem := why_not_carried(condition):
            reasons.append(_line(f"{verdict.reviewer} approves on the condition '{condition.text}', but {problem}"))
    return [_Blocker(reason) for reason in reasons]


def _usable(
    change: RequiredChange, allowed: Mapping[str, ParameterRange], current: Mapping[str, Any], takes_words: bool
) -> bool:
    """Return whether a builder may make a change, and whether it would change anything."""
    if change.parameter is None and change.by_builder:
        return takes_words
    if change.parameter is None or change.value is None or isinstance(change.value, bool):
        return False
    limits = allowed.get(change.parameter)
    return limits is not None and limits.holds(change.value) and change.value != current.get(change.parameter)


def _distinct(changes: list[RequiredChange]) -> list[RequiredChange]:
    """Return one change per (parameter, value), by parameter; of those in words, one per text."""
    first: dict[tuple[str, float, str], RequiredChange] = {}
    for change in changes:
        first.setdefault((change.parameter or "", change.value or 0, "" if change.parameter else change.text), change)
    return [first[key] for key in sorted(first)]


def _describe_unmet(result: CriterionResult) -> str:
    """Return what an unmet part of the hypothesis means: a significant difference need not be the registered one."""
    if result.criterion.metric == "accuracy_gain":
        return "the gain is not the registered one"
    of_rule = METRICS[result.criterion.metric].scope == "rule"
    return "the difference is not the registered one" if of_rule else "no significant difference"


def _silence(reviewer: str, why: NoVerdict) -> str:
    """Return what happened instead of a verdict, what helps, and the details if they fit."""
    message = one_line(f"no verdict from {reviewer}: {why.what}", REASON_CHARACTERS - HELP_CHARACTERS)
    message = f"{message}; {one_line(why.help, HELP_CHARACTERS - 2)}"
    return _line(f"{message} ({why.detail})" if why.detail else message)


def _dissent(vote: Vote) -> str:
    return f"no verdict from {vote.reviewer}: {vote.error}" if vote.error else f"{vote.reviewer} does not approve"


def _describe_finding(verdict: Verdict, finding: Finding) -> str:
    return _line(f"{verdict.reviewer}: {finding.statement}")


def _line(text: str) -> str:
    return one_line(text, REASON_CHARACTERS)
