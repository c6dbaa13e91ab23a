"""What a session took: hours of its jobs, and of GPUs where jobs ran on them, and money."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from sessions.run.money import ledger
from specs.jobs.job_records import Manifest
from specs.session.session_spec import ResolvedSpec
from specs.stages.registry import Stage


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


def effort_of(entries: Sequence[RecordedEntry], store: Store, resolved: ResolvedSpec) -> EffortTotal:
    """Return what the jobs of a session took, by its ledger; a GPU counts where the job's manifest names one."""
    spec = resolved.spec.with_resources()
    ends = (entry for entry in entries if entry.kind == "exit")
    manifests = {entry.key.partition("/")[2]: entry.raw.get("manifest") for entry in ends}
    hours = gpu_hours = 0.0
    for entry in entries:
        if entry.kind != "spend" or not entry.key.startswith("settle/"):
            continue
        seconds, key = entry.raw.get("seconds"), entry.key.partition("/")[2]
        if seconds is None:
            continue
        hours += seconds / 3600
        digest = manifests.get(key)
        on_gpu = digest is not None and Manifest.model_validate_json(store.get(digest)).device.startswith("cuda")
        names = [stage for stage in spec.stages if key.startswith(f"{entries[0].session}.{stage.name}.")]
        gpus = max((gpus_of(stage) for stage in names), default=0)
        gpu_hours += seconds / 3600 * (max(1, gpus) if on_gpu else 0)
    return EffortTotal(hours, gpu_hours, ledger.balance_of(list(entries), resolved.spec.budget).spent_usd)
