"""Several sessions as one programme: each criterion once, by what its newest session shows; effort in hours of GPUs.

A criterion is the same in two sessions if it has the same id and text and speaks of the same base model. Its state is
that of the newest session that decided it; an open state does not hide what an earlier session has shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from reviews.acceptance.criterion_state import CriterionState, State, acceptance_of
from reviews.history.history import History
from sessions.pages.acceptance.backlog import Backlog, BacklogItem, backlog_of
from sessions.pages.acceptance.effort import EffortTotal, effort_of
from sessions.run.run_layout import STORE, TRAIL, require_run


class ProgrammeSession(NamedTuple):
    """One session of a programme."""

    name: str
    started_ns: int
    model: str
    percent: float | None
    effort: EffortTotal
    states: tuple[CriterionState, ...]
    backlog: Backlog


class ProgrammeCriterion(NamedTuple):
    """A criterion of a programme, and the session that decides its state."""

    model: str
    id: str
    text: str
    weight: int
    state: State
    session: str


class Programme(NamedTuple):
    """Sessions added up, the oldest first."""

    sessions: tuple[ProgrammeSession, ...]
    criteria: tuple[ProgrammeCriterion, ...]
    backlog: tuple[tuple[str, BacklogItem], ...]
    """What is left, with the session whose figures it has, the most worthwhile first."""

    @property
    def percent(self) -> float | None:
        """Return ship-% over all criteria that apply; None where none does."""
        return _percent(self.criteria)

    def by_model(self) -> dict[str, float | None]:
        """Return ship-% of each base model."""
        models = dict.fromkeys(session.model for session in self.sessions)
        return {
            model: _percent([criterion for criterion in self.criteria if criterion.model == model]) for model in models
        }

    def effort(self) -> EffortTotal:
        """Return what all sessions took."""
        return EffortTotal(*(sum(part) for part in zip(*(session.effort for session in self.sessions), strict=True)))

    def as_json(self) -> dict[str, Any]:
        """Return the form of ``status --programme --json``."""
        return {
            "ship_percent": self.percent,
            "models": self.by_model(),
            "effort": self.effort()._asdict(),
            "sessions": [
                {
                    "session": session.name,
                    "model": session.model,
                    "ship_percent": session.percent,
                    "effort": session.effort._asdict(),
                }
                for session in self.sessions
            ],
            "criteria": [criterion._asdict() for criterion in self.criteria],
            "backlog": [item._asdict() | {"session": name, "worth": item.worth} for name, item in self.backlog],
        }

    def lines(self) -> Iterator[str]:
        """Yield the printed lines."""
        total = "no criterion applies" if self.percent is None else f"ship {self.percent:.1f} %"
        yield f"{total} of {len(self.sessions)} sessions; {self.effort().line()}"
        for model, percent in self.by_model().items():
            yield f"  {model}: {'no criterion applies' if percent is None else f'ship {percent:.1f} %'}"
        for session in self.sessions:
            percent = "-" if session.percent is None else f"{session.percent:.1f} %"
            yield f"  {session.name}: ship {percent}; {session.effort.line()}"
        for criterion in self.criteria:
            yield f"  {criterion.id} ({criterion.model}) {criterion.state}, in {criterion.session}: {criterion.text}"
        if self.backlog:
            yield "left, the most worthwhile first:"
        for name, item in self.backlog:
            gpus = f", {item.gpu_hours:.2f} GPU hours" if item.gpu_hours else ""
            yield f"  {item.id}, in {name}: +{item.gain:.1f} points for {item.hours:.2f} h{gpus}, {item.usd:.2f} USD"


def programme_of(runs: Sequence[Path]) -> Programme:
    """Add up sessions.

    Raises:
        UserError: a folder is not the run folder of a session.
        EvidenceMissing: what a trail names is not in its store.
    """
    sessions = sorted((_session(require_run(run).resolve()) for run in runs), key=lambda session: session.started_ns)
    deciding: dict[tuple[str, str, str], tuple[ProgrammeSession, CriterionState]] = {}
    for session in sessions:
        for state in session.states:
            key = (session.model, state.criterion.id, state.criterion.text)
            before = deciding.get(key)
            if before is None or state.state != "open" or before[1].state == "open":
                deciding[key] = session, state
    criteria = tuple(
        ProgrammeCriterion(model, id, text, state.criterion.weight, state.state, session.name)
        for (model, id, text), (session, state) in deciding.items()
    )
    return Programme(tuple(sessions), criteria, _remaining_items(deciding, criteria))


def _remaining_items(
    deciding: dict[tuple[str, str, str], tuple[ProgrammeSession, CriterionState]],
    criteria: Sequence[ProgrammeCriterion],
) -> tuple[tuple[str, BacklogItem], ...]:
    total = _weight(criteria)
    items: list[tuple[str, BacklogItem]] = []
    for session, state in deciding.values():
        item = next((item for item in session.backlog.items if item.id == state.criterion.id), None)
        if item is not None and state.state in ("open", "retracted"):
            items.append((session.name, item._replace(gain=100 * state.criterion.weight / total)))
    return tuple(sorted(items, key=lambda pair: (-pair[1].worth, pair[1].id)))


def _session(run: Path) -> ProgrammeSession:
    history = History.read(run / TRAIL, run / STORE)
    acceptance = acceptance_of(history)
    return ProgrammeSession(
        run.name,
        history[0].time_ns,
        history.resolved.spec.model.source,
        acceptance.percent,
        effort_of(history),
        acceptance.criteria,
        backlog_of(history),
    )


def _weight(criteria: Sequence[ProgrammeCriterion]) -> int:
    return sum(criterion.weight for criterion in criteria if criterion.state != "not_applicable")


def _percent(criteria: Sequence[ProgrammeCriterion]) -> float | None:
    done = sum(criterion.weight for criterion in criteria if criterion.state == "discharged")
    total = _weight(criteria)
    return float(round(Fraction(100 * done, total), 6)) if total else None
