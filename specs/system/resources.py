"""What a stage's job needs of the machine it runs on, where it runs, and what holding that machine may cost."""

from __future__ import annotations

from typing import Annotated, Protocol

from pydantic import Field

from specs.system.digests import Contract

LAUNCHERS = ("local", "ray", "skypilot")
"""Peergate's own: processes of this machine; Ray Jobs; machines that SkyPilot rents or finds."""
LauncherName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
"""One of :data:`LAUNCHERS`, or one of ``peergate.launchers``."""
WAIT_HOURS = 12.0
"""How long an attempt waits for its machine where no one says: a night."""
Accelerator = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,39}$")]


class Resources(Contract):
    """What a job asks for. What is not stated is left to the machine."""

    gpus: Annotated[int, Field(ge=0, le=1024)] | None = None
    gpu: Accelerator | None = None
    """The kind of GPU, as the launcher names it (``H200``); only a launcher that rents machines can choose one."""
    cpus: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Cores, and the threads the job uses."""
    memory_gb: Annotated[float, Field(gt=0, le=65_536)] | None = None
    """GB of 10**9 bytes."""
    spot: bool = False
    """Whether the machine may be taken away at any time, for less money."""
    max_usd_per_hour: Annotated[float, Field(ge=0)] | None = None
    """The most the machine may cost; instead of ``budget.machine_usd_per_hour``."""
    max_hours: Annotated[float, Field(gt=0, le=24 * 30)] | None = None
    """The longest an attempt may hold the machine, start and transfers included; by default the job's own limit."""
    max_wait_hours: Annotated[float, Field(gt=0, le=24 * 30)] | None = None
    """The longest an attempt may wait before it begins: in a queue, or for a machine below the price cap."""


class _Rates(Protocol):
    @property
    def machine_usd_per_hour(self) -> float: ...


class _StageLimits(Protocol):
    @property
    def max_minutes(self) -> float: ...
    @property
    def resources(self) -> Resources | None: ...


def held_hours(stage: _StageLimits) -> float:
    """Return the longest an attempt of a stage may hold its machine, in hours."""
    resources = stage.resources
    return stage.max_minutes / 60 if resources is None or resources.max_hours is None else resources.max_hours


def usd_per_hour(budget: _Rates, resources: Resources | None) -> float:
    """Return what an hour of a job's machine costs at most: its own cap, or the rate of the budget."""
    cap = None if resources is None else resources.max_usd_per_hour
    return budget.machine_usd_per_hour if cap is None else cap


def attempt_usd(budget: _Rates, stage: _StageLimits) -> float:
    """Return the most one attempt can cost, in USD: price cap times the hours it may hold its machine."""
    return round(held_hours(stage) * usd_per_hour(budget, stage.resources), 6)


def fill_resources(own: Resources | None, other: Resources | None) -> Resources | None:
    """Return what a stage asks for, with the session's value for each that it does not state."""
    if own is None or other is None:
        return own or other
    stated = {name: getattr(own, name) for name in own.model_fields_set}
    return other.model_copy(update=stated)
