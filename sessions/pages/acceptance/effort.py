"""What a session took: hours of its jobs, and of GPUs where jobs ran on them, and money."""

from __future__ import annotations

from typing import NamedTuple

from reviews.history.history import History
from sessions.run.money import ledger
from specs.jobs.job_records import Manifest
from specs.stages.registry import Stage
from specs.trail.session_bodies import ExitEntry, SpendEntry


class EffortTotal(NamedTuple):
    """Hours and money."""

    job_hours: float
    gpu_hours: float
    """Hours of the jobs times their GPUs."""
    usd: float

    def line(self) -> str:
        """Return it in words."""
        gpus = f", {self.gpu_hours:.2f} GPU hours" if self.gpu_hours else ""
        return f"{self.job_hours:.2f} h of jobs{gpus}, {self.usd:.2f} USD"


def gpus_of(stage: Stage) -> int:
    """Return how many GPUs a stage asks for: those of its resources, one where its device is a GPU."""
    if stage.resources is not None and stage.resources.gpus is not None:
        return stage.resources.gpus
    return int(getattr(stage.parameters, "device", "auto") == "cuda")


def effort_of(history: History) -> EffortTotal:
    """Return what the jobs of a session took, by its ledger; a GPU counts where the job's manifest names one."""
    spec = history.resolved.spec.with_resources()
    manifests = {entry.body.key: entry.body.manifest for entry in history.of(ExitEntry)}
    hours = gpu_hours = 0.0
    for spend in (entry.body for entry in history.of(SpendEntry)):
        seconds, key = spend.seconds, spend.job
        if spend.what != "settle" or seconds is None:
            continue
        hours += seconds / 3600
        digest = manifests.get(key)
        on_gpu = digest is not None and Manifest.model_validate_json(history.store.get(digest)).device.startswith(
            "cuda"
        )
        names = [stage for stage in spec.stages if key.startswith(f"{history.session}.{stage.name}.")]
        gpus = max((gpus_of(stage) for stage in names), default=0)
        gpu_hours += seconds / 3600 * (max(1, gpus) if on_gpu else 0)
    return EffortTotal(hours, gpu_hours, ledger.balance_of(history, history.resolved.spec.budget).spent_usd)
