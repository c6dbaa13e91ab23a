"""The open stage as a builder sees it, read from the trail."""

from __future__ import annotations

from typing import Any, Literal

from reviews.gate import grants
from reviews.history.history import History
from reviews.history.recorded_history import Judgement
from sessions.run.money.estimate import forecasts
from sessions.session import Session
from specs.jobs.grant_and_claim import StageView
from specs.stages.base.stage import SIZES
from specs.stages.registry import Stage
from specs.system.errors import PeergateError
from specs.trail.gate_bodies import DecisionEntry, HumanAnswerEntry, Opens
from specs.trail.session_bodies import ExitEntry, LaunchEntry
from specs.trail.verdict import Decision

_OpenedBy = Literal["approval", "revision", "retry"]
_OPENED_BY: dict[str, _OpenedBy] = {"approve": "approval", "revise": "revision", "retry": "retry"}


def opener_of(history: History, stage: str, attempt: int) -> Judgement:
    """Return the judgement that opened an attempt; raises PeergateError if nothing opened it."""
    opens = Opens(stage=stage, attempt=attempt)
    judgements = (entry.body for entry in reversed(history.of(DecisionEntry, HumanAnswerEntry)))
    opener = next((judgement for judgement in judgements if judgement.opens == opens), None)
    if opener is None:
        raise PeergateError("no decision opens this attempt", where=history.attempt(stage, attempt).job)
    return opener


def open_stage(session: Session) -> grants.Opening:
    """Return what the newest judgement opens; raises PeergateError if nothing is open."""
    opening = grants.latest_opening(session.trail)
    if opening is None:
        raise PeergateError("no decision opens a stage", where=session.name)
    return opening


def _read_pilot_changes(history: History, stage: Stage) -> dict[str, Any]:
    """Return the changes of the accepted pilot, without sizes."""
    pilot = history.accepted_attempt(stage.pilot) if stage.pilot else None
    if pilot is None or pilot.plan is None:
        return {}
    return {
        name: value
        for name, value in pilot.plan.body.changes.items()
        if (name in stage.ranges or name in stage.choices) and name not in SIZES
    }


def view_of(session: Session, stage: Stage, attempt: int) -> StageView:
    """Return the view of an attempt: its start, what may be changed, what the gate required."""
    history = session.history
    opener = opener_of(history, stage.name, attempt)
    answer = opener.outcome if isinstance(opener, DecisionEntry) else opener.answer
    before = history.attempt(stage.name, attempt - 1).plan
    # The first time, or after a retraction, a stage begins with the spec or as its pilot ended.
    changes = dict(before.body.changes) if before and answer != "approve" else _read_pilot_changes(history, stage)
    return StageView(
        stage=stage.name,
        kind=stage.kind,
        attempt=attempt,
        opened_by=_OPENED_BY[answer],
        objective=session.resolved.spec.objective,
        parameters=stage.parameters.model_dump(mode="json") | changes,
        changes=changes,
        ranges={name: (limits.min, limits.max) for name, limits in stage.ranges.items()},
        choices=dict(stage.choices),
        required=opener.required if isinstance(opener, DecisionEntry) else {},
        tasks=_tasks(session, opener),
    )


def expected_s(session: Session, stage: Stage) -> float:
    """Return how long the stage's job is expected to run: as its newest attempt, or one of its kind, did.

    Before there is one, as long as its training is forecast; 0 if nothing is known.
    """
    launched = {launch.body.key: launch.time_ns for launch in session.trail.iterate(LaunchEntry)}
    took: dict[str, float] = {}
    for ended in session.trail.iterate(ExitEntry):
        if (first := launched.get(ended.body.key)) is not None:
            took[ended.body.stage] = (ended.time_ns - first) / 1e9
    if stage.name in took:
        return took[stage.name]
    alike = [
        current_stage.name
        for current_stage in session.resolved.spec.stages
        if current_stage.kind == stage.kind and current_stage.name in took
    ]
    if alike:
        return took[alike[-1]]
    try:
        return next(
            (forecast.hours * 3600 for forecast in forecasts(session.resolved) if forecast.stage == stage.name), 0.0
        )
    except (PeergateError, OSError):  # The files of the spec are gone: nothing is known.
        return 0.0


def _tasks(session: Session, opener: Judgement) -> tuple[str, ...]:
    """Return the changes that a decision required in words, from the decision as it was computed."""
    if not isinstance(opener, DecisionEntry) or opener.outcome != "revise":
        return ()
    decision = Decision.model_validate(session.store.get_value(opener.decision))
    return tuple(
        required_change.text for required_change in decision.required_changes if required_change.parameter is None
    )
