"""What this machine has, for jobs that say what they ask for."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from specs.errors import Blocked
from specs.machines import Resources

_NVIDIA = Path("/proc/driver/nvidia/gpus")
_GB = 10**9


def cpus() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpus() -> int:
    """Return how many NVIDIA GPUs a job started here would see."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        there = sum(1 for _ in _NVIDIA.iterdir())
    except OSError:
        return 0
    return there if visible is None else min(there, len([one for one in visible.split(",") if one.strip()]))


def require(asked: Resources, where: str) -> None:
    """Refuse what this machine has too little of.

    Raises:
        Blocked: with both figures of each.
    """
    if lacks := lacking(asked):
        raise Blocked(
            f"this machine has {', '.join(lacks)}",
            where=where,
            hint="take another `launcher:`, ask for less under `resources:`, or go on at a larger machine",
        )


def lacking(asked: Resources) -> list[str]:
    """Return what this machine has too little of, each with both figures; empty when it suffices."""
    memory = psutil.virtual_memory().total / _GB
    pairs = (
        ("GPUs", gpus(), asked.gpus, "g"),
        ("cores", cpus(), asked.cpus, "g"),
        ("GB of memory", memory, asked.memory_gb, ".1f"),
    )
    return [
        f"{has:{form}} {what}, asked are {wanted:g}" for what, has, wanted, form in pairs if wanted and wanted > has
    ]
