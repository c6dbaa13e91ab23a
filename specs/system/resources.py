"""What a stage's job needs of the machine it runs on, where it runs, and what holding that machine may cost."""

from __future__ import annotations

from typing import Annotated, Protocol

from pydantic import Field

from specs.system.digests import Contract

LauncherName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
"""One of ``LAUNCHERS`` (``specs/session/operations.py``), or one of ``peergate.launchers``."""
Accelerator = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,39}$")]


class Resources(Contract):
    """What a job requests. The machine decides what is not stated."""

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


def usd_per_hour(budget: _Rates, resources: Resources | None) -> float:
    """Return what an hour of a job's machine costs at most: its own cap, or the rate of the budget."""
    cap = None if resources is None else resources.max_usd_per_hour
    return budget.machine_usd_per_hour if cap is None else cap
