"""Checks, findings, verdicts, why a verdict is missing, and decisions: what the gate is made of."""

from __future__ import annotations

from typing import Any, Literal

from specs.jobs.grant_and_claim import ClaimResult
from specs.stages.base.stage import Criterion
from specs.system.digests import Contract, Digest
from specs.system.errors import BudgetExceeded, NoVerdictCause, PeergateError, ReviewerUnavailable
from specs.system.exact import format_against_limit

Cause = NoVerdictCause | Literal["budget", "withdrawn", "suspended"]

HELP: dict[Cause, str] = {
    "key_refused": "set a valid key for the reviewer in the environment",
    "rate_limited": "wait, or raise the rate limit of the key",
    "request_refused": "compare the reviewer's model, api and base_url in the spec with what the server offers",
    "server_error": "ask again when the server works",
    "unreachable": "check the network and the reviewer's address, and ask again",
    "timed_out": "raise timeout_s under reviewer.effort in a new session, or ask again when the server is quicker",
    "cut_off": "check the network, and ask again",
    "malformed": "check that the reviewer's address speaks the API that the spec names",
    "incomplete": "raise max_cost_usd or max_output_tokens under reviewer.effort in a new session",
    "refused": "name another model as the reviewer in a new session, or decide yourself",
    "out_of_schema": "ask again, or name a model that keeps to a JSON Schema in a new session",
    "cost_cap": "raise max_cost_usd under reviewer.effort in a new session",
    "budget": "raise the budget with `peergate amend`",
    "withdrawn": "nothing: another attempt begins if one is left",
    "suspended": "decide yourself, also about the gates it names, or name another reviewer in a new session",
    "process_lost": "ask again; the reviewer's process is restarted",
    "no_quorum": "fix what kept the members from answering, and ask again",
    "unusable": "ask again, or decide yourself",
}
"""What a person can do, by cause."""


class NoVerdict(Contract):
    """Why the reviewer gave no verdict."""

    cause: Cause
    what: str
    """What happened, in a sentence."""
    detail: str = ""
    """What a server, a model or a process said of it: untrusted, and the first to be cut."""
    help: str
    """What a person can do."""

    def __str__(self) -> str:
        return f"{self.what}: {self.detail}" if self.detail else self.what


class EarlierAnswer(Contract):
    """A whole answer that could not be read, after which the model was asked once more."""

    request: Digest
    response: Digest
    error: str
    """The complaint that the model got."""


class CitedLookup(Contract):
    """What a reviewer had looked up and been answered before its own answer."""

    entry: str
    """The key of the ``look`` entry."""
    answer: Digest


def no_verdict_of(error: PeergateError) -> NoVerdict:
    """Return why a review gave no verdict, from the error that it ended with."""
    if isinstance(error, BudgetExceeded):
        return NoVerdict(cause="budget", what=error.message, help=HELP["budget"])
    if isinstance(error, ReviewerUnavailable):
        return NoVerdict(cause=error.cause, what=error.what, detail=error.detail, help=error.hint or HELP[error.cause])
    return NoVerdict(cause="unusable", what=error.message, help=error.hint or HELP["unusable"])


Status = Literal["PASS", "WARN", "FAIL", "NOT_APPLICABLE", "BLOCKED", "ERROR"]
Severity = Literal["blocking", "major", "minor", "note"]
Outcome = Literal["approve", "revise", "reject", "escalate", "null"]
"""``null``: the evidence is sound and shows no significant difference; the session closes with that result."""

CLOSED: tuple[Status, ...] = ("FAIL", "BLOCKED", "ERROR")
"""Statuses that keep the gate closed when the check is blocking."""


class RequiredChange(Contract):
    """What would repair a finding. With ``parameter`` and ``value`` a builder can apply it."""

    text: str
    parameter: str | None = None
    value: float | int | None = None
    by_builder: bool = False
    """Whether the words alone are a task for the builder: another attempt of its script or its parameters can do it."""


class CheckResult(Contract):
    """What one deterministic check found: a figure, and the rows or lines that show it."""

    id: str
    title: str
    status: Status
    blocking: bool
    detail: str
    figure: float | None = None
    threshold: str | None = None
    rows: tuple[dict[str, Any], ...] = ()
    evidence: tuple[Digest, ...] = ()
    required_change: RequiredChange | None = None
    repairable: bool = True
    """False when no parameter can fix it: the data or the design itself is wrong."""
    scheduled_by: str | None = None
    """The defect at another stage that scheduled it: a blocking check has to pass then, and a warning is not enough."""

    @property
    def closes(self) -> bool:
        """Return whether it keeps the gate closed, if no person lifts it."""
        return self.blocking and (self.status in CLOSED or (self.scheduled_by is not None and self.status == "WARN"))


class Span(Contract):
    """A place in an artifact: a JSON pointer into a JSON value, or a 1-based line range of a text."""

    artifact: Digest
    pointer: str | None = None
    lines: tuple[int, int] | None = None
    quote: str = ""


class Finding(Contract):
    """One thing a reviewer saw, with the places that show it."""

    id: str
    severity: Severity
    statement: str
    evidence: tuple[Span, ...]
    required_change: RequiredChange | None = None
    ruled_out: str = ""
    refuted: str = ""
    """Why a finding that was blocking did not survive a fresh look at its evidence."""


class Condition(Contract):
    """What has to hold before a later stage starts. An approval carries it; it blocks the stage until met or waived."""

    text: str
    stage: str
    """The later stage that must not start before."""
    criterion: Criterion | None = None
    """Judged by code once its metric is measured; without one only a person can settle the condition."""


class Vote(Contract):
    """What one member of a panel said, or why it said nothing."""

    reviewer: str
    approve: bool | None
    """None when the member gave no verdict."""
    verdict: Digest | None = None
    error: str = ""
    """What happened, when it gave none."""


class Verdict(Contract):
    """What a reviewer returns. It proposes; ``decide()`` disposes."""

    schema_version: Literal[1] = 1
    reviewer: str
    findings: tuple[Finding, ...]
    recommendation: str
    reasoning: str
    risks: tuple[str, ...]
    conditions: tuple[Condition, ...] = ()
    approve: bool
    not_judged: tuple[str, ...] = ()
    votes: tuple[Vote, ...] = ()
    """For a panel: the vote of each member; the findings are those of all members."""
    quorum: int = 1
    """How many votes a panel's approval takes, and how many verdicts any answer of it."""
    analysis: str = ""
    """What the reviewer read and compared before it wrote findings; nothing is decided by it."""
    no_verdict: NoVerdict | None = None
    """Why no one judged; what is above then approves nothing."""


class CriterionResult(Contract):
    """A criterion against the measured value; ``value`` is None when the metric was not measured."""

    criterion: Criterion
    value: float | None
    counts: tuple[int, int] | None = None
    """For a fraction: its numerator and denominator."""
    met: bool
    hypothesis: bool = False
    """True for the registered hypothesis itself: unmet on sound evidence is a null, not a failure."""

    def describe_measurement(self) -> str:
        """Return the measured value in words: ``17 of 60 (0.283333)``."""
        return _describe_measurement(self.criterion, self.value, self.counts)

    def unmet(self) -> str:
        """Return the requirement next to the measured value."""
        return f"{self.criterion} is not met: {self.describe_measurement()}"


class ConditionResult(Contract):
    """An open condition of an earlier approval against what was measured since."""

    id: str
    """``STAGE.ATTEMPT/NUMBER`` of the approval it comes from."""
    condition: Condition
    is_due: bool
    """Return whether the stage it blocks is this gate's next stage, or an earlier stage."""
    value: float | None
    counts: tuple[int, int] | None = None
    met: bool

    def describe_measurement(self) -> str:
        """Return the measured value in words."""
        return _describe_measurement(self.condition.criterion, self.value, self.counts)


def _describe_measurement(criterion: Criterion | None, value: float | None, counts: tuple[int, int] | None) -> str:
    if value is None or criterion is None:
        return "not measured"
    number = format_against_limit(value, criterion.get_bound()[1])
    return f"{counts[0]} of {counts[1]} ({number})" if counts else number


class Packet(Contract):
    """What a reviewer sees: built by Peergate, no builder prose; everything else by digest."""

    schema_version: Literal[1] = 1
    stage: str
    kind: str
    registration: Digest
    registered: dict[str, Any]
    granted_parameters: dict[str, Any]
    allowed_ranges: dict[str, tuple[float, float]]
    allowed_choices: dict[str, tuple[str | bool, ...]] = {}
    metrics: dict[str, Any]
    metrics_digest: Digest | None
    criteria: tuple[CriterionResult, ...]
    checks: tuple[CheckResult, ...]
    checks_digest: Digest
    sample_rows: tuple[dict[str, Any], ...]
    flagged_rows: tuple[dict[str, Any], ...]
    log_tail: str
    attempts: tuple[dict[str, Any], ...]
    evaluations_of_heldout: int
    claims: tuple[ClaimResult, ...]
    left_out: dict[str, int]
    effective: dict[str, Any] = {}
    """Settings as the job read them back from the objects that did the work, with device and precision."""
    conditions: tuple[ConditionResult, ...] = ()
    """Conditions of earlier approvals that are open."""
    lifted: dict[str, str] = {}
    """Checks that a person has lifted for this stage, and why."""
    previous_findings: tuple[dict[str, Any], ...] = ()
    """What was found in the attempt before."""
    unchanged_since: int | None = None
    """The earlier attempt that gave the same metrics, checks and rows."""
    reading: tuple[dict[str, str], ...] = ()
    """The session's reading list, ``path`` and ``text`` of each file: what a reviewer reads first."""
    points: tuple[str, ...] = ()
    """What the kind of the stage has a reviewer look at."""
    code: str = ""
    """The script of a recipe, as it ran."""
    withdrawn: str = ""
    """Why the builder ended the job of this attempt itself: there is nothing to judge, and no one is asked."""
    lineages: dict[str, tuple[dict[str, Any], ...]] = {}
    """The origin of an input's weights, by input, if a builder's script trained them at some point."""


class Decision(Contract):
    """The gate's answer: computed from findings, checks and criteria, and from nothing else."""

    schema_version: Literal[1] = 1
    stage: str
    attempt: int
    outcome: Outcome
    reasons: tuple[str, ...]
    required_changes: tuple[RequiredChange, ...] = ()
    dropped_findings: int = 0
    conditions: tuple[Condition, ...] = ()
    """What an approval carries over to later stages."""
    met: tuple[str, ...] = ()
    """Ids of due conditions that hold now."""
    packet: Digest
    verdict: Digest


def retarget_spans(verdict: Verdict, before: str, now: str) -> Verdict:
    """Return a verdict on the same evidence, with spans into the packet ``now`` where they pointed into ``before``."""

    def turn(finding: Finding) -> Finding:
        spans = (
            span.model_copy(update={"artifact": now}) if span.artifact == before else span for span in finding.evidence
        )
        return finding.model_copy(update={"evidence": tuple(spans)})

    return verdict.model_copy(update={"findings": tuple(turn(finding) for finding in verdict.findings)})
