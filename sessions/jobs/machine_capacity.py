"""What this machine has, for jobs that say what they ask for."""

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

    Counted are those that the driver lists under ``/proc``, or the devices where a container shows only them. That
    torch can use them is not known: it is not imported for this, and the job refuses where it finds none.
    """
    try:
        there = sum(1 for _ in _NVIDIA.iterdir())
    except OSError:
        # nvidia0, nvidia1, ...: the others belong to the driver as a whole.
        there = len(list(_DEVICES.glob("nvidia[0-9]*")))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return there
    # CUDA reads the list up to the first that is no device: "-1" hides all of them.
    named = takewhile(lambda one: one and not one.startswith("-"), (one.strip() for one in visible.split(",")))
    return min(there, len(list(named)))


def lacking_device(parameters: Mapping[str, Any]) -> str:
    """Return why a stage with these parameters cannot run here; empty when nothing is known against it."""
    if parameters.get("device") != "cuda" or gpus():
        return ""
    return "this machine has no NVIDIA GPU, the stage has device: cuda"


def require_device(parameters: Mapping[str, Any], where: str) -> None:
    """Refuse a stage that has to run on a GPU where there is none.

    Raises:
        Blocked: with both.
    """
    if lacks := lacking_device(parameters):
        raise Blocked(
            lacks, where=where, hint="take another `--profile` or `launcher:`, or go on at a machine with one"
        )


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
