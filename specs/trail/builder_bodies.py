"""Bodies of the entries of a builder: what its model said, what it asked of tools, what it proposes and claims."""

from __future__ import annotations

from typing import Any, Literal

from specs.jobs.grant_and_claim import Claim
from specs.system.digests import Digest
from specs.trail.entry import AttemptBody
from specs.trail.tool_arguments import Phase

NoteKind = Literal["plan", "progress", "complete", "free", "amendment", "helper"]


class TurnEntry(AttemptBody):
    """``turn``: one answer of the builder's model."""

    KIND = "turn"

    phase: Phase
    number: int
    said: Digest
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
    """Of the PNG next to the text."""


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
