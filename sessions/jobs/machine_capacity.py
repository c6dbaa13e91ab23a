"""What this machine has, for jobs that state what they need."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

import psutil

from specs.errors import Blocked
from specs.resources import Resources

_NVIDIA = Path("/proc/driver/nvidia/gpus")
_DEVICES = Path("/dev")
_GB = 10**9


def cpus() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpus() -> int:
    """Return how many NVIDIA GPUs a job started here would see.

    They are counted in ``/proc``, or by their devices in a container that shows only those. torch is not imported, so
    it may still be unable to use them; the job then refuses.
    """
    try:
        there = sum(1 for _ in _NVIDIA.iterdir())
    except OSError:
        # nvidia0, nvidia1, ...: the other devices belong to the driver as a whole.
        there = len(list(_DEVICES.glob("nvidia[0-9]*")))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return there
    # CUDA reads the list up to the first entry that is no device: "-1" hides all of them.
    named = takewhile(lambda one: one and not one.startswith("-"), (one.strip() for one in visible.split(",")))
    return min(there, len(list(named)))


def require(asked: Resources | None, parameters: Mapping[str, Any], where: str) -> None:
    """Raise Blocked if this machine has too little for a stage's resources, or no GPU for its parameters."""
    if asked is not None and (lacks := lacking(asked)):
        raise Blocked(
            f"this machine has {', '.join(lacks)}",
            where=where,
            hint="take another `launcher:`, ask for less under `resources:`, or resume on a larger machine",
        )
    if parameters.get("device") == "cuda" and not gpus():
        hint = "take another `--profile` or `launcher:`, or resume on a machine with a GPU"
        raise Blocked("this machine has no NVIDIA GPU, the stage has device: cuda", where=where, hint=hint)


def lacking(asked: Resources) -> list[str]:
    """Return what this machine has too little of, each with both figures; empty if it suffices."""
    memory = psutil.virtual_memory().total / _GB
    pairs = (
        ("GPUs", gpus(), asked.gpus, "g"),
        ("cores", cpus(), asked.cpus, "g"),
        ("GB of memory", memory, asked.memory_gb, ".1f"),
    )
    return [
        f"{has:{form}} {what}, asked are {wanted:g}" for what, has, wanted, form in pairs if wanted and wanted > has
    ]
