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


class Form(NamedTuple):
    """The body of a kind, in all versions up to this one."""

    body: type[Contract]
    version: int = 1


FORMS: dict[EntryKind, Form] = {
    "open": Form(session_bodies.Open, version=9),
    "model": Form(session_bodies.Model, version=2),
    "turn": Form(builder_bodies.Turn),
    "call": Form(builder_bodies.Call),
    "result": Form(builder_bodies.Result, version=2),
    "note": Form(builder_bodies.Note),
    "plan": Form(builder_bodies.Plan),
    "grant": Form(gate_bodies.Granted, version=4),
    "launch": Form(session_bodies.Launch, version=3),
    "exit": Form(session_bodies.Exit, version=7),
    "lost": Form(session_bodies.Lost, version=3),
    "challenge": Form(session_bodies.Challenged, version=2),
    "witness": Form(session_bodies.Witnessed, version=2),
    "metrics": Form(gate_bodies.Metrics),
    "submit": Form(builder_bodies.Submit),
    "checks": Form(gate_bodies.Checks),
    "packet": Form(gate_bodies.Shown),
    "look": Form(gate_bodies.LookedUp),
    "verdict": Form(gate_bodies.Judged, version=3),
    "decision": Form(gate_bodies.Decided),
    "spend": Form(session_bodies.Spend),
    "budget": Form(session_bodies.Shortage, version=2),
    "human": Form(gate_bodies.Answered),
    "override": Form(gate_bodies.Override),
    "amendment": Form(gate_bodies.Amendment),
    "retraction": Form(gate_bodies.Retraction),
    "pruned": Form(session_bodies.Pruned),
    "replication": Form(session_bodies.Replication),
    "replicated": Form(session_bodies.Replicated),
    "asked": Form(requested_review.AskedEntry, version=3),
    "answered": Form(requested_review.AnsweredEntry, version=4),
    "workspace": Form(session_bodies.Workspace),
    "keys": Form(session_bodies.Keys),
    "pause": Form(session_bodies.By),
    "resume": Form(session_bodies.Resume, version=4),
    "report": Form(session_bodies.Report, version=3),
    "close": Form(session_bodies.Close, version=2),
}


def misfit(kind: str, version: int, body: bytes) -> str | None:
    """Say how a body, given as JSON, differs from the form of its kind; empty if it does not.

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
        parts = [_told(error_details) for error_details in problems[:MOST_PROBLEMS]]
        if len(problems) > MOST_PROBLEMS:
            parts.append(f"{len(problems) - MOST_PROBLEMS} further problems")
        return "; ".join(parts)
    return ""


def _told(problem: Any) -> str:
    where = ".".join(("body", *map(str, problem["loc"])))
    if problem["type"] == "missing":
        return f"{where} is missing"
    if problem["type"] == "extra_forbidden":
        return f"{where} is unknown"
    text = repr(problem["input"])
    return f"{where} is {text if len(text) <= 60 else f'{text[:57]}...'}: {problem['msg']}"
