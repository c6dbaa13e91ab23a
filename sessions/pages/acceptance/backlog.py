"""What is left of the acceptance criteria, ranked by what it adds to ship-% over what it takes.

The gain is exact: the criterion's weight. The effort is the spec's own figure, or the recorded minutes of the stages
that lead there, or their limits. What this session cannot reach any more comes last, whatever it would add.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from reviews.acceptance.criterion_state import Acceptance, CriterionState, State, acceptance_of
from reviews.history.history import History
from sessions.pages.acceptance.effort import gpus_of
from sessions.pages.acceptance.siblings import Sibling, siblings_of
from sessions.pages.diagnosis.actions import minutes_of
from sessions.run.money import ledger
from specs.session.operations import attempt_usd
from specs.session.session_spec import ResolvedSpec
from specs.trail.session_bodies import CloseEntry

LEAST_HOURS = 1 / 60
"""What a person takes to change anything."""
_DAY, _WEEK = 8.0, 40.0


class BacklogItem(NamedTuple):
    """A criterion that is not discharged."""

    id: str
    text: str
    state: State
    issue: str
    """Where it is discussed; empty where the spec names nothing."""
    missing: str
    """Why it is not discharged now."""
    needs: str
    refuted_by: str
    gain: float
    """What it adds to ship-%, in points."""
    hours: float
    gpu_hours: float
    """``hours`` times the GPUs that each of its stages requests."""
    basis: str
    """What the hours are: ``stated``, ``measured`` or ``limit``."""
    usd: float
    """What the machines of the stages may cost at most, by the registered rates."""
    stages: tuple[str, ...]
    """The stages that must still run for it."""
    out_of_reach: str
    """Why this session cannot discharge it any more; empty where it can."""

    @property
    def worth(self) -> float:
        """Return points of ship-% an hour."""
        return self.gain / max(self.hours, LEAST_HOURS)

    @property
    def priority(self) -> str:
        """Return P0 to P3: five points in a day, two in three days, one in a week, anything less."""
        if self.out_of_reach:
            return "-"
        limits = (("P0", 5.0, _DAY), ("P1", 2.0, 3 * _DAY), ("P2", 1.0, _WEEK))
        return next((name for name, least, most in limits if self.gain >= least and self.hours <= most), "P3")


class Backlog(NamedTuple):
    """What is left, the most worthwhile first."""

    now: float | None
    """ship-%."""
    ceiling: float | None
    """ship-% if everything this session can still reach is discharged."""
    items: tuple[BacklogItem, ...]
    siblings: tuple[Sibling, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as ``backlog --json`` shows it."""
        items = [item._asdict() | {"worth": item.worth, "priority": item.priority} for item in self.items]
        siblings = [sibling._asdict() for sibling in self.siblings]
        return {"ship_percent": self.now, "ceiling_percent": self.ceiling, "items": items, "siblings": siblings}


def backlog_of(history: History) -> Backlog:
    """Return the open criteria of a session; raises EvidenceMissing as :func:`acceptance_of`."""
    acceptance = acceptance_of(history)
    total = sum(criterion.criterion.weight for criterion in acceptance.criteria if criterion.state != "not_applicable")
    criterion_states = [criterion for criterion in acceptance.criteria if criterion.state in ("open", "retracted")]
    items = [_item(history, criterion_state, total) for criterion_state in criterion_states]
    items.sort(key=lambda item: (bool(item.out_of_reach), -item.worth, item.id))
    return Backlog(acceptance.percent, _ceiling(acceptance, items), tuple(items), tuple(siblings_of(history)))


def _ceiling(acceptance: Acceptance, items: Sequence[BacklogItem]) -> float | None:
    if acceptance.percent is None:
        return None
    return round(acceptance.percent + sum(item.gain for item in items if not item.out_of_reach), 6)


def _item(history: History, criterion_state: CriterionState, total: int) -> BacklogItem:
    criterion = criterion_state.criterion
    names = _before(history.resolved, criterion.stage)
    # A stage whose approval shows nothing for the criterion has to run again itself.
    run = [name for name in names if name == criterion.stage or history.accepted_attempt(name) is None]
    minutes, measured = minutes_of(history, run)
    spec = history.resolved.spec.with_resources()
    billed = [(name, gpus) for name in run if (gpus := gpus_of(spec.stage(name)))]
    gpu_minutes = sum(minutes_of(history, [name])[0] * gpus for name, gpus in billed)
    usd = sum(attempt_usd(spec.budget, spec.stage(name)) for name in run)
    stated = criterion.effort_hours
    return BacklogItem(
        id=criterion.id,
        text=criterion.text,
        state=criterion_state.state,
        issue=criterion.issue or "",
        missing=criterion_state.why,
        needs=criterion.needs(),
        refuted_by=criterion.refuted_by(),
        gain=100 * criterion.weight / total,
        hours=minutes / 60 if stated is None else stated,
        gpu_hours=round(gpu_minutes / 60, 4),
        basis="stated" if stated is not None else "measured" if measured else "limit",
        usd=round(usd, 6),
        stages=tuple(run),
        out_of_reach=_out_of_reach(history, usd),
    )


def _before(resolved: ResolvedSpec, stage: str) -> list[str]:
    """Return the stages up to one, in their order: a session runs them one after the other."""
    names = [stage.name for stage in resolved.spec.stages]
    return names[: names.index(stage) + 1]


def _out_of_reach(history: History, usd: float) -> str:
    closed = history.newest(CloseEntry)
    if closed is not None:
        return f"the session is closed ({closed.body.decision}): another session must show it"
    remaining = ledger.balance_of(history, history.resolved.spec.budget).left_usd
    if usd > remaining + 1e-9:
        return f"its stages may cost {usd:.2f} USD, {remaining:.2f} USD are left"
    return ""
