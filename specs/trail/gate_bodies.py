"""Bodies of the entries of a builder, of gates, from metrics to decision, and of people."""

from __future__ import annotations

from typing import Any, Literal

from specs.jobs.grant_and_claim import Claim, Grant
from specs.system.digests import Contract, Digest
from specs.trail.entry import DESIGN, AttemptBody, Body, OfAttempt
from specs.trail.tool_arguments import Phase
from specs.trail.verdict import Cause, CitedLookup, Condition, EarlierAnswer, Outcome, Status

NoteKind = Literal["plan", "progress", "complete", "free", "amendment", "helper"]


class TurnEntry(AttemptBody):
    """``turn``: one answer of the builder's model."""

    KIND = "turn"

    phase: Phase
    number: int
    answer: Digest
    request: Digest
    response: Digest
    model: str
    stop: Literal["tool_use", "end", "length", "refusal"]
    usage: dict[str, int] | None
    usd: float
    usd_is_measured: bool
    reservation: str
    helper: str = ""
    """The helper that says it; empty for the builder itself."""


class ToolCallEntry(AttemptBody):
    """``call``: what the builder asks of a tool, written before it is carried out."""

    KIND = "call"

    phase: Phase
    number: int
    turn: int
    call_id: str
    tool: str
    arguments: Digest
    helper: str = ""


class ToolResultEntry(AttemptBody):
    """``result``: what came of a call."""

    KIND = "result"

    call: str
    """The key of the call."""
    text: Digest
    is_error: bool
    ends_phase: bool
    image: Digest | None = None
    """The digest of a PNG next to the text."""


class NoteEntry(AttemptBody):
    """``note``: what the builder leaves for later."""

    KIND = "note"

    what: NoteKind
    text: Digest


class PlanEntry(AttemptBody):
    """``plan``: what the builder proposes for an attempt."""

    KIND = "plan"

    builder: str
    changes: dict[str, Any]
    """Parameters that differ from the spec's, as :func:`specs.stages.registry.resolve_parameters` allows them."""
    reason: str
    escalate: bool
    answers: dict[str, str] = {}
    """Answers to findings of the attempt before, by finding id."""


class SubmitEntry(AttemptBody):
    """``submit``: what the builder claims of an attempt before it is judged."""

    KIND = "submit"

    claims: tuple[Claim, ...]
    answers: dict[str, str]
    sent_back: int
    """How often a submission was refused before."""
    unsubmitted: str
    """Why nothing was handed in; empty when something was."""


class GrantEntry(Grant, Body):
    """``grant``: the single-use right to run an attempt of one stage."""

    KIND = "grant"

    def entry_key(self) -> str:
        """Return ``grant/JOB``."""
        return self.key_of(self.key())


class MetricsEntry(AttemptBody):
    """``metrics``: what was computed from the raw rows, or why it was not."""

    KIND = "metrics"

    metrics: Digest | None
    why: str
    code: Digest


class ChecksEntry(AttemptBody):
    """``checks``: the results of the deterministic checks."""

    KIND = "checks"

    checks: Digest
    summary: dict[str, Status]


class PacketEntry(AttemptBody):
    """``packet``: what a reviewer is shown."""

    KIND = "packet"

    packet: Digest


class LookupEntry(AttemptBody):
    """``look``: what a reviewer looked up in the evidence of a packet or a request, and what it was answered."""

    KIND = "look"

    packet: Digest
    """The digest of the packet, or of the request's reading."""
    reviewer: str
    number: int
    tool: str
    arguments: Digest
    most: int
    """The most bytes that the answer could have."""
    answer: Digest
    is_error: bool


class PaidExchange(Contract):
    """What the trail records of an exchange with a reviewer that costs money."""

    reservation: str | None = None
    usd: float | None = None
    usd_is_measured: bool | None = None
    model: str | None = None
    request: Digest | None = None
    response: Digest | None = None
    statuses: tuple[int | None, ...] | None = None
    usage: dict[str, int] | None = None
    seconds: float | None = None
    reasoning: str | None = None
    earlier: tuple[EarlierAnswer, ...] = ()
    """Answers before the last one: unreadable answers, and answers that looked something up."""
    looked: tuple[CitedLookup, ...] = ()
    """What the reviewer looked up, in the order in which it cites it."""


class VerdictEntry(AttemptBody, PaidExchange):
    """``verdict``: a reviewer's verdict on a packet, and the exchange if the reviewer costs money."""

    KIND = "verdict"

    packet: Digest
    verdict: Digest
    error: str
    """Why the reviewer gave no verdict; what ``verdict`` names then approves nothing."""
    cause: Cause | None = None
    """The same in a word."""
    reviewer: str
    same_as: int | None = None
    """The earlier attempt whose verdict this is, because nothing has changed since."""
    members: int | None = None
    """For a panel: how many members were asked."""


class CanaryEntry(AttemptBody, PaidExchange):
    """``canary``: what a reviewer said of a packet with a planted flaw, which it could not tell from a true one."""

    KIND = "canary"

    of: Digest
    """The true packet."""
    edit: str
    packet: Digest
    """The packet with the flaw."""
    verdict: Digest
    reviewer: str
    outcome: Literal["rejected", "approved", "no_verdict"]


class Opens(OfAttempt):
    """The stage and attempt that may be granted next."""


class NamedCondition(Condition):
    """A condition with the id it is waived by: ``STAGE.ATTEMPT/NUMBER`` of the approval."""

    id: str


class DecisionEntry(Body):
    """``decision``: what the gate computed, and what that opens."""

    KIND = "decision"

    stage: str | None
    """None for the gate of the design."""
    attempt: int
    outcome: Outcome
    reasons: tuple[str, ...]
    required: dict[str, float | int]
    decision: Digest
    opens: Opens | None
    code: Digest
    """The digest of the measuring code."""
    conditions: tuple[NamedCondition, ...] = ()
    met: tuple[str, ...] = ()

    def entry_key(self) -> str:
        """Return ``decision/STAGE.ATTEMPT``, with ``design`` for the design's gate."""
        return self.key_of(self.stage or DESIGN, self.attempt)


class HumanAnswerEntry(Body):
    """``human``: what a person answered."""

    KIND = "human"

    stage: str | None
    attempt: int
    question: Digest
    """The digest of the entry that asks."""
    answer: Literal["retry", "approve", "stop"]
    reason: str
    by: str
    opens: Opens | None
    expires: float | None = None
    """Seconds since 1970, after which an approval that was not used opens nothing."""
    waives: tuple[str, ...] = ()


class OverrideEntry(Body):
    """``override``: a check lifted for a stage, or a condition waived."""

    KIND = "override"
    FROM_OUTSIDE = True

    check: str | None
    stage: str | None = None
    condition: str | None
    by: str
    reason: str
    expires: float | None = None


class SpecDifference(Contract):
    """One value of the spec before and after, by JSON pointer."""

    pointer: str
    before: Any
    after: Any


class AmendmentEntry(Body):
    """``amendment``: a changed registration, with the review it had."""

    KIND = "amendment"
    FROM_OUTSIDE = True

    outcome: Outcome
    reasons: tuple[str, ...]
    registration: Digest
    spec: Digest
    source: Digest
    changes: tuple[SpecDifference, ...]
    exploratory: bool
    packet: Digest
    verdict: Digest
    by: str
    reason: str
    overridden: bool
    code: Digest
    conditions: tuple[NamedCondition, ...] = ()
    met: tuple[str, ...] = ()


class RetractionEntry(Body):
    """``retraction``: a judgement taken back, with everything it opened."""

    KIND = "retraction"
    FROM_OUTSIDE = True
    AFTER_THE_END = True

    since: int
    """The number of the entry that is taken back."""
    stage: str | None
    attempt: int
    judgements: tuple[str, ...]
    grants: tuple[str, ...]
    by: str
    reason: str
    reasons: tuple[str, ...]
