"""The form of every kind of entry: what its body must hold.

A new kind is a class and a line in :data:`FORMS`. A field that is added to a kind is optional, because older trails
stay valid, and raises the kind's version, because an older Peergate cannot judge it: to such a reader the entry is
newer, not damaged.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import ValidationError

from specs.digests import Contract
from specs.trail.builder_bodies import Call, Note, Plan, Result, Submit, Turn
from specs.trail.entry import EntryKind
from specs.trail.gate_bodies import Checks, Decided, Granted, Judged, Metrics, Shown
from specs.trail.human_bodies import Amendment, Answered, Override, Retraction
from specs.trail.requested_review import AnsweredEntry, AskedEntry
from specs.trail.session_bodies import (
    By,
    Close,
    Exit,
    Keys,
    Launch,
    Lost,
    Model,
    Open,
    Report,
    Resume,
    Shortage,
    Spend,
    Workspace,
)

MOST_PROBLEMS = 3


class Form(NamedTuple):
    """The body of a kind, in all versions up to this one."""

    body: type[Contract]
    version: int = 1


FORMS: dict[EntryKind, Form] = {
    "open": Form(Open, version=6),
    "model": Form(Model),
    "turn": Form(Turn),
    "call": Form(Call),
    "result": Form(Result),
    "note": Form(Note),
    "plan": Form(Plan),
    "grant": Form(Granted, version=4),
    "launch": Form(Launch, version=2),
    "exit": Form(Exit, version=2),
    "lost": Form(Lost, version=2),
    "metrics": Form(Metrics),
    "submit": Form(Submit),
    "checks": Form(Checks),
    "packet": Form(Shown),
    "verdict": Form(Judged),
    "decision": Form(Decided),
    "spend": Form(Spend),
    "budget": Form(Shortage),
    "human": Form(Answered),
    "override": Form(Override),
    "amendment": Form(Amendment),
    "retraction": Form(Retraction),
    "asked": Form(AskedEntry),
    "answered": Form(AnsweredEntry),
    "workspace": Form(Workspace),
    "keys": Form(Keys),
    "pause": Form(By),
    "resume": Form(Resume, version=4),
    "report": Form(Report, version=2),
    "close": Form(Close),
}


def misfit(kind: str, version: int, body: bytes) -> str | None:
    """Say what about a body, given as JSON, does not have the form of its kind; empty when it has.

    Nothing is converted: a number written as text is not a number. Names and values in the answer are untrusted.

    Returns:
        None when the kind, or this version of it, is newer than this Peergate, which then cannot say.
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
        told = [_told(one) for one in problems[:MOST_PROBLEMS]]
        if len(problems) > MOST_PROBLEMS:
            told.append(f"{len(problems) - MOST_PROBLEMS} further problems")
        return "; ".join(told)
    return ""


def _told(problem: Any) -> str:
    where = ".".join(("body", *map(str, problem["loc"])))
    if problem["type"] == "missing":
        return f"{where} is missing"
    if problem["type"] == "extra_forbidden":
        return f"{where} is unknown"
    return f"{where} is {_cut(repr(problem['input']))}: {problem['msg']}"


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
