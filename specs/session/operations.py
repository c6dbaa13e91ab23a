"""How a session is run: where its jobs run, what they ask for and cost, and who hears of it. Nothing here judges."""

from __future__ import annotations

from specs.notices.notify import Notify
from specs.notices.trackers import TrackerName
from specs.session.design import Budget
from specs.stages.base.stage import StageBase
from specs.system.digests import Contract
from specs.system.resources import LauncherName, Resources, usd_per_hour

LAUNCHERS = ("local", "ray", "skypilot")
"""Peergate's own: processes of this machine; Ray Jobs; machines that SkyPilot rents or finds."""
WAIT_HOURS = 12.0
"""How long an attempt waits for its machine where no one says: a night."""


class Operations(Contract):
    """The part of a spec that no judge reads: a change of this code leaves the measuring code what it was."""

    launcher: LauncherName = "local"
    """Where jobs run by default; a stage may override it."""
    resources: Resources | None = None
    """Resources of jobs by default; a stage may override each."""
    notify: tuple[Notify, ...] = ()
    """Who is notified when a person is asked, money runs low, a job is lost, a gate rejects, or the session ends."""
    trackers: tuple[TrackerName, ...] = ()
    """Trackers that also show its metrics, curves and gates while it runs, in its folders below ``trackers/``."""


def held_hours(stage: StageBase) -> float:
    """Return the longest an attempt of a stage may hold its machine, in hours."""
    resources = stage.resources
    return stage.max_minutes / 60 if resources is None or resources.max_hours is None else resources.max_hours


def attempt_usd(budget: Budget, stage: StageBase) -> float:
    """Return the most one attempt can cost, in USD: price cap times the hours it may hold its machine."""
    return round(held_hours(stage) * usd_per_hour(budget, stage.resources), 6)


def fill_resources(own: Resources | None, other: Resources | None) -> Resources | None:
    """Return what a stage asks for, with the session's value for each that it does not state."""
    if own is None or other is None:
        return own or other
    stated = {name: getattr(own, name) for name in own.model_fields_set}
    return other.model_copy(update=stated)
