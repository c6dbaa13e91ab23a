"""The form of every kind of entry: what its body must hold."""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError

from specs.system.text import plural
from specs.trail import gate_bodies, requested_review, session_bodies
from specs.trail.entry import Body, UnknownBody

MOST_PROBLEMS = 3


VERSION = 1
"""The version of every kind: an entry of a later version is newer than this Peergate, not damaged."""

_CLASSES: tuple[type[Body], ...] = (
    session_bodies.OpenEntry,
    session_bodies.ModelEntry,
    session_bodies.WorkspaceEntry,
    session_bodies.KeysEntry,
    session_bodies.PauseEntry,
    session_bodies.ResumeEntry,
    session_bodies.ReportEntry,
    session_bodies.CloseEntry,
    session_bodies.LaunchEntry,
    session_bodies.ExitEntry,
    session_bodies.LostJobEntry,
    session_bodies.ChallengeEntry,
    session_bodies.WitnessEntry,
    session_bodies.SpendEntry,
    session_bodies.BudgetEntry,
    session_bodies.PruningEntry,
    session_bodies.ReplicationPlanEntry,
    session_bodies.ReplicationEntry,
    gate_bodies.TurnEntry,
    gate_bodies.ToolCallEntry,
    gate_bodies.ToolResultEntry,
    gate_bodies.NoteEntry,
    gate_bodies.PlanEntry,
    gate_bodies.SubmitEntry,
    gate_bodies.GrantEntry,
    gate_bodies.MetricsEntry,
    gate_bodies.ChecksEntry,
    gate_bodies.PacketEntry,
    gate_bodies.LookupEntry,
    gate_bodies.VerdictEntry,
    gate_bodies.CanaryEntry,
    gate_bodies.DecisionEntry,
    gate_bodies.HumanAnswerEntry,
    gate_bodies.OverrideEntry,
    gate_bodies.AmendmentEntry,
    gate_bodies.RetractionEntry,
    requested_review.QuestionEntry,
    requested_review.AnswerEntry,
)
FORMS: dict[str, type[Body]] = {form.KIND: form for form in _CLASSES}
"""The class of each kind's bodies."""
AFTER_THE_END = frozenset(form.KIND for form in _CLASSES if form.AFTER_THE_END)
"""Kinds of entries that may follow the end of a session."""


def misfit(kind: str, version: int, body: bytes) -> str | None:
    """Return how a body, given as JSON, differs from the form of its kind; empty if it does not.

    Nothing is converted. Names and values in the answer are untrusted.

    Returns:
        None when the kind, or this version of it, is newer than this Peergate.
    """
    form = FORMS.get(kind)
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
            parts.append(plural(len(problems) - MOST_PROBLEMS, "further problem"))
        return "; ".join(parts)
    return ""


def read_body(kind: str, version: int, body: dict[str, Any]) -> Body:
    """Return a body as the object of its kind; :class:`UnknownBody` of a newer kind or version.

    Raises:
        ValidationError: it does not have the form of its kind.
    """
    form = FORMS.get(kind)
    if form is None or version > VERSION:
        return UnknownBody()
    return form.model_validate_json(json.dumps(body), strict=True)


def _describe_problem(problem: Any) -> str:
    where = ".".join(("body", *map(str, problem["loc"])))
    if problem["type"] == "missing":
        return f"{where} is missing"
    if problem["type"] == "extra_forbidden":
        return f"{where} is unknown"
    text = repr(problem["input"])
    return f"{where} is {text if len(text) <= 60 else f'{text[:57]}...'}: {problem['msg']}"
