"""The form of every kind of entry: what its body must hold."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from specs.jobs.grant_and_claim import Grant
from specs.system.digests import Contract
from specs.trail import builder_bodies, gate_bodies, requested_review, session_bodies
from specs.trail.entry import EntryKind

MOST_PROBLEMS = 3


VERSION = 1
"""Of every kind: an entry of a later version is newer than this Peergate, not damaged."""

FORMS: dict[EntryKind, type[Contract]] = {
    "open": session_bodies.Open,
    "model": session_bodies.ModelEntry,
    "turn": builder_bodies.TurnEntry,
    "call": builder_bodies.ToolCallEntry,
    "result": builder_bodies.ToolResultEntry,
    "note": builder_bodies.Note,
    "plan": builder_bodies.PlanEntry,
    "grant": Grant,
    "launch": session_bodies.LaunchEntry,
    "exit": session_bodies.Exit,
    "lost": session_bodies.LostJobEntry,
    "challenge": session_bodies.ChallengeEntry,
    "witness": session_bodies.WitnessEntry,
    "metrics": gate_bodies.Metrics,
    "submit": builder_bodies.Submit,
    "checks": gate_bodies.ChecksEntry,
    "packet": gate_bodies.PacketEntry,
    "look": gate_bodies.LookedUp,
    "verdict": gate_bodies.VerdictEntry,
    "decision": gate_bodies.DecisionEntry,
    "spend": session_bodies.Spend,
    "budget": session_bodies.Shortage,
    "human": gate_bodies.HumanAnswerEntry,
    "override": gate_bodies.Override,
    "amendment": gate_bodies.Amendment,
    "retraction": gate_bodies.Retraction,
    "pruned": session_bodies.PruningEntry,
    "replication": session_bodies.ReplicationEntry,
    "replicated": session_bodies.ReplicationResultEntry,
    "asked": requested_review.AskedEntry,
    "answered": requested_review.AnsweredEntry,
    "workspace": session_bodies.Workspace,
    "keys": session_bodies.Keys,
    "pause": session_bodies.By,
    "resume": session_bodies.Resume,
    "report": session_bodies.Report,
    "close": session_bodies.Close,
}


def misfit(kind: str, version: int, body: bytes) -> str | None:
    """Return how a body, given as JSON, differs from the form of its kind; empty if it does not.

    Nothing is converted. Names and values in the answer are untrusted.

    Returns:
        None when the kind, or this version of it, is newer than this Peergate.
    """
    form = FORMS.get(kind)  # pyright: ignore[reportArgumentType, reportCallIssue]
    if form is None or version > VERSION:
        return None
    if version < 1:
        return f"version must be at least 1, got {version}"
    try:
        form.model_validate_json(body, strict=True)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False)
        parts = [_describe_problem(error_details) for error_details in problems[:MOST_PROBLEMS]]
        if len(problems) > MOST_PROBLEMS:
            parts.append(f"{len(problems) - MOST_PROBLEMS} further problems")
        return "; ".join(parts)
    return ""


def _describe_problem(problem: Any) -> str:
    where = ".".join(("body", *map(str, problem["loc"])))
    if problem["type"] == "missing":
        return f"{where} is missing"
    if problem["type"] == "extra_forbidden":
        return f"{where} is unknown"
    text = repr(problem["input"])
    return f"{where} is {text if len(text) <= 60 else f'{text[:57]}...'}: {problem['msg']}"
