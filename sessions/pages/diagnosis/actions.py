"""What to do next, ranked by expected gain over effort.

The gain is a weight and no measurement: 1 for what closes the gate for certain, 0.5 for a warning of the class that
binds, 0.2 for any other. The effort is measured: the recorded minutes of the stages that run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reviews.checks.remedies import remedy_of_result
from reviews.history.history import History
from sessions.pages.diagnosis.attempts import TrainingAttempt
from sessions.pages.diagnosis.causes import binding, detector_of, has_fired
from specs.session.session_spec import ResolvedSpec
from specs.trail.verdict import CheckResult

SURE, LIKELY, POSSIBLE = 1.0, 0.5, 0.2
LEAST_MINUTES = 1.0
"""What a person takes to change anything."""


class SuggestedAction(NamedTuple):
    """One thing to change."""

    do: str
    against: str
    gain: float
    minutes: float
    """The duration of the stages that run again."""
    again: tuple[str, ...]
    measured: bool
    """Whether the minutes are recorded ones; otherwise they are the limits of the spec."""

    @property
    def worth(self) -> float:
        """Return gain over effort, an hour."""
        return 60 * self.gain / max(self.minutes, LEAST_MINUTES)


def actions_for(
    history: History, attempt: TrainingAttempt, results: Sequence[CheckResult]
) -> tuple[SuggestedAction, ...]:
    """Return an action for each detector that fired and has a remedy, the most worthwhile first."""
    first = binding(results)
    actions: list[SuggestedAction] = []
    for result in results:
        remedy = remedy_of_result(result)
        if first is None or not has_fired(result) or not remedy:
            continue
        same = detector_of(result).cause == detector_of(first).cause
        gain = SURE if result.closes else LIKELY if same else POSSIBLE
        again = _again(history.resolved, attempt.stage, from_data=detector_of(result).cause == "data")
        minutes, measured = minutes_of(history, again)
        actions.append(SuggestedAction(remedy, result.id, gain, minutes, again, measured))
    # The cause before its symptom, where both are worth as much.
    actions.sort(key=lambda action: (-action.worth, first is None or action.against != first.id))
    return tuple(actions)


def _again(resolved: ResolvedSpec, stage: str, *, from_data: bool) -> tuple[str, ...]:
    """Return the stages that run again: the training, what it reads where that is to change, and what reads it."""
    stages = {stage.name: stage for stage in resolved.spec.stages}
    texts = {stage}
    if from_data:
        sources = {reference.partition(".")[0] for reference in stages[stage].inputs.values()}
        texts |= sources & stages.keys()
    for name, current_stage in stages.items():
        if {reference.partition(".")[0] for reference in current_stage.inputs.values()} & texts:
            texts.add(name)
    return tuple(name for name in stages if name in texts)


def minutes_of(history: History, again: Sequence[str]) -> tuple[float, bool]:
    """Return the minutes of the newest recorded attempts; of stages without one, their limits."""
    total, measured = 0.0, True
    for name in again:
        attempts = history.attempts(name)
        settled = attempts[-1].settlement if attempts else None
        seconds = settled.seconds if settled else None
        if seconds is None:
            measured = False
            total += history.resolved.spec.stage(name).max_minutes
        else:
            total += seconds / 60
    return round(total, 2), measured
