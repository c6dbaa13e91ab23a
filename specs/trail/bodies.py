"""The form of every kind of entry: what its body must hold.

A field that is added to a kind is optional, because older trails stay valid, and raises the kind's version: to an older
Peergate the entry is newer, not damaged.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import ValidationError

from specs.system.digests import Contract
from specs.trail import builder_bodies, gate_bodies, requested_review, session_bodies
from specs.trail.entry import EntryKind

MOST_PROBLEMS = 3


class BodyForm(NamedTuple):
    """The body of a kind, in all versions up to this one."""

    body: type[Contract]
    version: int = 1


FORMS: dict[EntryKind, BodyForm] = {
    "open": BodyForm(session_bodies.Open, version=9),
    "model": BodyForm(session_bodies.ModelEntry, version=2),
    "turn": BodyForm(builder_bodies.TurnEntry),
    "call": BodyForm(builder_bodies.ToolCallEntry),
    "result": BodyForm(builder_bodies.ToolResultEntry, version=2),
    "note": BodyForm(builder_bodies.Note),
    "plan": BodyForm(builder_bodies.PlanEntry),
    "grant": BodyForm(gate_bodies.GrantEntry, version=4),
    "launch": BodyForm(session_bodies.LaunchEntry, version=3),
    "exit": BodyForm(session_bodies.Exit, version=7),
    "lost": BodyForm(session_bodies.LostJobEntry, version=3),
    "challenge": BodyForm(session_bodies.ChallengeEntry, version=2),
    "witness": BodyForm(session_bodies.WitnessEntry, version=2),
    "metrics": BodyForm(gate_bodies.Metrics),
    "submit": BodyForm(builder_bodies.Submit),
    "checks": BodyForm(gate_bodies.ChecksEntry),
    "packet": BodyForm(gate_bodies.PacketEntry),
    "look": BodyForm(gate_bodies.LookedUp),
    "verdict": BodyForm(gate_bodies.VerdictEntry, version=3),
    "decision": BodyForm(gate_bodies.DecisionEntry),
    "spend": BodyForm(session_bodies.Spend),
    "budget": BodyForm(session_bodies.Shortage, version=2),
    "human": BodyForm(gate_bodies.HumanAnswerEntry),
    "override": BodyForm(gate_bodies.Override),
    "amendment": BodyForm(gate_bodies.Amendment),
    "retraction": BodyForm(gate_bodies.Retraction),
    "pruned": BodyForm(session_bodies.PruningEntry),
    "replication": BodyForm(session_bodies.ReplicationEntry),
    "replicated": BodyForm(session_bodies.ReplicationResultEntry),
    "asked": BodyForm(requested_review.AskedEntry, version=3),
    "answered": BodyForm(requested_review.AnsweredEntry, version=4),
    "workspace": BodyForm(session_bodies.Workspace),
    "keys": BodyForm(session_bodies.Keys),
    "pause": BodyForm(session_bodies.By),
    "resume": BodyForm(session_bodies.Resume, version=4),
    "report": BodyForm(session_bodies.Report, version=3),
    "close": BodyForm(session_bodies.Close, version=2),
}


def misfit(kind: str, version: int, body: bytes) -> str | None:
    """Return how a body, given as JSON, differs from the form of its kind; empty if it does not.

    Nothing is converted. Names and values in the answer are untrusted.

    Returns:
        None when the kind, or this version of it, is newer than this Peergate.
    """
    form = FORMS.get(kind)  # pyright: ignore[reportArgumentType, reportCallIssue]
    if form is None or version > form.version:
        return None
    if version < 1:
        return f"version {version} never was, they count from 1"
    try:
        form.body.model_validate_json(body, strict=True)
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
