"""The gate's decision: a pure function of checks, criteria, findings and where their spans point.

The worst rule that applies wins: approve < null < revise < escalate < reject. No score and no prose is read; a
reviewer can close the gate with evidence, and cannot open it over a failed check. A person can: a check that was lifted
beforehand does not block, and the decision says who lifted it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reviews.gate.panel import disagree
from specs.digests import Digest
from specs.stages.metric_catalog import METRICS
from specs.stages.stage import Range
from specs.text import one_line
from specs.trail.no_verdict import NoVerdict
from specs.trail.verdict import (
    CLOSED,
    CheckResult,
    Condition,
    ConditionResult,
    CriterionResult,
    Decision,
    Finding,
    RequiredChange,
    Span,
    Verdict,
    Vote,
)

REASON_CHARACTERS = 500
HELP_CHARACTERS = 150


@dataclass
class _Blocker:
    """One thing that keeps the gate closed, and the changes named to mend it."""

    reason: str
    place: str = ""
    """Where in the packet it stands, as a JSON pointer, if it is a check or criterion."""
    changes: list[RequiredChange] = field(default_factory=list[RequiredChange])
    hopeless: bool = False
    """No parameter can mend it: the data or the design itself is wrong."""
    for_a_person: bool = False
    """It cannot be judged by rules: evidence is missing, or a reviewer gave none."""


def decide(
    *,
    stage: str,
    attempt: int,
    checks: tuple[CheckResult, ...],
    criteria: tuple[CriterionResult, ...],
    verdict: Verdict,
    packet_digest: Digest,
    resolvable: Callable[[Span], bool],
    allowed_ranges: Mapping[str, Range],
    current: Mapping[str, Any],
    attempts_left: int,
    conditions: tuple[ConditionResult, ...] = (),
    lifted: Mapping[str, str] | None = None,
    why_not_carried: Callable[[Condition], str] = lambda _: "",
    unchanged_since: int | None = None,
) -> Decision:
    """Decide whether the next stage may run.

    Args:
        stage: name of the stage, or ``design``.
        attempt: number of the attempt that is judged.
        checks: results in the order of the packet; spans point at them by index.
        criteria: registered thresholds with measured values, in the order of the packet.
        verdict: what the reviewer proposes.
        packet_digest: digest of the packet the verdict is about.
        resolvable: says whether a span points at something that is in that packet.
        allowed_ranges: the values a required change may move a parameter to.
        current: the parameters of the attempt that is judged.
        attempts_left: how many more attempts the gate allows.
        conditions: open conditions of earlier approvals, in the order of the packet.
        lifted: ids of checks that a person has lifted, with who and why.
        why_not_carried: says why a condition of this verdict cannot be carried to a later stage; empty when it can.
        unchanged_since: an earlier attempt with the same evidence. What it was told to change it did not change.
    """
    lifted = lifted or {}
    blocking, dropped = _supported(verdict, resolvable)
    floor = [
        *_check_blockers(checks, lifted, blocking, resolvable),
        *_criterion_blockers(criteria, blocking, resolvable),
        *_condition_blockers(conditions, blocking, resolvable),
    ]
    raised = tuple(f"/checks/{index}/" for index, check in enumerate(checks) if check.id in lifted)
    told = [one for one in blocking if not _repeats(one, raised, resolvable)]
    blockers = [
        *floor,
        *_finding_blockers(verdict, told, tuple(f"{blocker.place}/" for blocker in floor) + raised, resolvable),
        *_reviewer_blockers(verdict, resolvable, why_not_carried),
    ]
    silent = [_silence(verdict.reviewer, verdict.no_verdict)] if verdict.no_verdict else []
    if silent and (verdict.votes or not floor):
        blockers.append(_Blocker(silent.pop(), for_a_person=True))
    elif not verdict.approve and not blockers:
        text = f"{verdict.reviewer} does not approve and points at nothing that blocks"
        blockers.append(_Blocker(one_line(text, REASON_CHARACTERS), for_a_person=True))

    carried = verdict.conditions
    usable = {
        id(blocker): [one for one in blocker.changes if _usable(one, allowed_ranges, current)] for blocker in blockers
    }
    changes = _distinct([one for blocker in blockers for one in usable[id(blocker)]])
    reasons = [blocker.reason for blocker in blockers] + silent
    if any(blocker.hopeless for blocker in blockers):
        outcome = "reject"
    elif any(blocker.for_a_person or not usable[id(blocker)] for blocker in blockers):
        outcome = "escalate"
    elif len({one.parameter for one in changes}) < len(changes):
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
    elif unmet := [one for one in criteria if not one.met]:
        outcome = "null"
        reasons = [f"{_not_found(one)}: {one.unmet()}" for one in unmet]
    else:
        outcome = "approve"
        applied = sum(one.status != "NOT_APPLICABLE" for one in checks)
        met = f", and every criterion is met ({', '.join(str(one.criterion) for one in criteria)})" if criteria else ""
        reasons = [
            f"none of {applied} checks closes the gate{met}",
            *(_lifted(check, lifted[check.id]) for check in checks if check.id in lifted and _closes(check)),
            *(one_line(_dissent(vote), REASON_CHARACTERS) for vote in verdict.votes if not vote.approve),
            *(one_line(f"on the condition that before {one.stage}: {one.text}", REASON_CHARACTERS) for one in carried),
        ]
    return Decision(
        stage=stage,
        attempt=attempt,
        outcome=outcome,
        reasons=tuple(reasons),
        required_changes=tuple(changes),
        dropped_findings=dropped,
        conditions=tuple(one for one in carried if not why_not_carried(one)),
        met=tuple(one.id for one in conditions if one.due and one.met),
        packet=packet_digest,
        verdict=verdict.content_digest(),
    )


def _supported(verdict: Verdict, resolvable: Callable[[Span], bool]) -> tuple[list[Finding], int]:
    """Return the blocking findings with a span that resolves, and how many findings of any kind have none."""
    supported = [one for one in verdict.findings if any(resolvable(span) for span in one.evidence)]
    return [one for one in supported if one.severity == "blocking"], len(verdict.findings) - len(supported)


def _finding_blockers(
    verdict: Verdict, told: list[Finding], places: tuple[str, ...], resolvable: Callable[[Span], bool]
) -> list[_Blocker]:
    """Return what the reviewer's blocking findings add to the floor.

    A reviewer who names no change says that nothing would mend it, and that is more than a failed check says. Where
    reviewers disagree, a person decides instead.
    """
    found: list[_Blocker] = []
    for one in told:
        hopeless = one.required_change is None and not disagree(verdict)
        if hopeless or not _repeats(one, places, resolvable):
            found.append(_Blocker(_said(verdict, one), changes=_named(one), hopeless=hopeless))
    return found


def _closes(check: CheckResult) -> bool:
    return check.blocking and check.status in CLOSED


def _lifted(check: CheckResult, by: str) -> str:
    return one_line(f"check {check.id} is {check.status}, lifted by {by}", REASON_CHARACTERS)


def _check_blockers(
    checks: tuple[CheckResult, ...],
    lifted: Mapping[str, str],
    blocking: list[Finding],
    resolvable: Callable[[Span], bool],
) -> list[_Blocker]:
    found: list[_Blocker] = []
    for index, check in enumerate(checks):
        if not _closes(check) or check.id in lifted:
            continue
        named = [check.required_change] if check.required_change else []
        found.append(
            _Blocker(
                one_line(f"check {check.id} is {check.status}: {check.detail}", REASON_CHARACTERS),
                f"/checks/{index}",
                named + _changes_at(f"/checks/{index}", blocking, resolvable),
                hopeless=check.status == "FAIL" and not check.repairable,
                for_a_person=check.status != "FAIL",
            )
        )
    return found


def _criterion_blockers(
    criteria: tuple[CriterionResult, ...], blocking: list[Finding], resolvable: Callable[[Span], bool]
) -> list[_Blocker]:
    found: list[_Blocker] = []
    for index, result in enumerate(criteria):
        place = f"/criteria/{index}"
        if result.value is None:
            found.append(_Blocker(f"{result.criterion} was not measured", place, for_a_person=True))
        elif not result.met and not result.hypothesis:
            found.append(_Blocker(result.unmet(), place, _changes_at(place, blocking, resolvable)))
    return found


def _condition_blockers(
    conditions: tuple[ConditionResult, ...], blocking: list[Finding], resolvable: Callable[[Span], bool]
) -> list[_Blocker]:
    """Return the conditions of earlier approvals that are due here and not met."""
    found: list[_Blocker] = []
    for index, result in enumerate(conditions):
        if not result.due or result.met:
            continue
        place, criterion = f"/conditions/{index}", result.condition.criterion
        told = one_line(f"condition {result.id}: {result.condition.text}", REASON_CHARACTERS)
        if criterion is None:
            found.append(_Blocker(f"{told} (only a person can settle it)", place, for_a_person=True))
        elif result.value is None:
            found.append(_Blocker(f"{told} ({criterion} was not measured since)", place, for_a_person=True))
        else:
            reason = f"{told} ({criterion} is not met: {result.measured()})"
            found.append(_Blocker(reason, place, _changes_at(place, blocking, resolvable)))
    return found


def _reviewer_blockers(
    verdict: Verdict, resolvable: Callable[[Span], bool], why_not_carried: Callable[[Condition], str]
) -> list[_Blocker]:
    """Return what only a person can settle about the verdict itself."""
    found = _panel_blockers(verdict) if verdict.votes else []
    found += [
        _Blocker(f"{_said(verdict, one)} (points at nothing in the packet)", for_a_person=True)
        for one in verdict.findings
        if one.severity == "blocking" and not any(resolvable(span) for span in one.evidence)
    ]
    for condition in verdict.conditions:
        # Dropping a condition that cannot be carried would turn it into an approval without conditions.
        if problem := why_not_carried(condition):
            text = f"{verdict.reviewer} approves on the condition '{condition.text}', but {problem}"
            found.append(_Blocker(one_line(text, REASON_CHARACTERS), for_a_person=True))
    return found


def _panel_blockers(verdict: Verdict) -> list[_Blocker]:
    """Return what a panel leaves open: members who disagree about something that blocks."""
    found: list[_Blocker] = []
    if disagree(verdict) and any(one.severity == "blocking" for one in verdict.findings):
        sides = ", ".join(
            f"{vote.reviewer} {'approves' if vote.approve else 'does not'}"
            for vote in verdict.votes
            if vote.approve is not None
        )
        found.append(_Blocker(one_line(f"the reviewers disagree: {sides}", REASON_CHARACTERS), for_a_person=True))
    return found


def _repeats(finding: Finding, places: tuple[str, ...], resolvable: Callable[[Span], bool]) -> bool:
    """Say whether a finding only repeats checks or criteria that block by themselves."""
    spans = [span for span in finding.evidence if resolvable(span)]
    return all(span.pointer is not None and f"{span.pointer}/".startswith(places) for span in spans)


def _changes_at(place: str, blocking: list[Finding], resolvable: Callable[[Span], bool]) -> list[RequiredChange]:
    """Return the changes of the findings that point at a place of the packet or below it."""
    return [
        change
        for finding in blocking
        for change in _named(finding)
        if any(
            resolvable(span) and span.pointer is not None and f"{span.pointer}/".startswith(f"{place}/")
            for span in finding.evidence
        )
    ]


def _named(finding: Finding) -> list[RequiredChange]:
    return [finding.required_change] if finding.required_change else []


def _usable(change: RequiredChange, allowed: Mapping[str, Range], current: Mapping[str, Any]) -> bool:
    """Say whether a builder may make a change, and whether it would change anything."""
    if change.parameter is None or change.value is None or isinstance(change.value, bool):
        return False
    limits = allowed.get(change.parameter)
    return limits is not None and limits.holds(change.value) and change.value != current.get(change.parameter)


def _distinct(changes: list[RequiredChange]) -> list[RequiredChange]:
    """Return one change per (parameter, value), by parameter."""
    first: dict[tuple[str, float], RequiredChange] = {}
    for change in changes:
        first.setdefault((change.parameter or "", change.value or 0), change)
    return [first[key] for key in sorted(first)]


def _not_found(result: CriterionResult) -> str:
    """Say what an unmet part of the hypothesis means: a difference can be significant and not be the one sought."""
    of_rule = METRICS[result.criterion.metric].scope == "rule"
    return "the difference is not the registered one" if of_rule else "no significant difference"


def _silence(reviewer: str, why: NoVerdict) -> str:
    """Say that nobody judged, what happened, what helps, and as far as there is room what was said of it."""
    told = one_line(f"no verdict from {reviewer}: {why.what}", REASON_CHARACTERS - HELP_CHARACTERS)
    told = f"{told}; {one_line(why.help, HELP_CHARACTERS - 2)}"
    return one_line(f"{told} ({why.detail})" if why.detail else told, REASON_CHARACTERS)


def _dissent(vote: Vote) -> str:
    return f"no verdict from {vote.reviewer}: {vote.error}" if vote.error else f"{vote.reviewer} does not approve"


def _said(verdict: Verdict, finding: Finding) -> str:
    return one_line(f"{verdict.reviewer}: {finding.statement}", REASON_CHARACTERS)
