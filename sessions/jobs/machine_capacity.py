"""What this machine has, for jobs that state what they need."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

import psutil

from specs.session.session_spec import SessionSpec
from specs.stages.registry import Stage
from specs.system.errors import BlockedError
from specs.system.resources import Resources
from training.planning.memory_fit import CARD_GB, Capacity

_NVIDIA = Path("/proc/driver/nvidia/gpus")
_DEVICES = Path("/dev")
_GB = 10**9
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


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
    # CUDA reads the list up to the first entry that is not a device: "-1" hides all of them.
    named = takewhile(lambda text: text and not text.startswith("-"), (part.strip() for part in visible.split(",")))
    return min(there, len(list(named)))


def memory_bytes() -> int:
    """Return the memory that jobs here may use: of the machine, or of the container that they run in."""
    limits = [psutil.virtual_memory().total]
    for file in _CGROUP_LIMITS:
        try:
            limits.append(int(file.read_text(encoding="ascii")))
        except (OSError, ValueError):  # "max": no limit.
            continue
    return min(limits)


def card_bytes() -> int | None:
    """Return the memory of the smallest GPU here, or None if nvidia-smi does not say."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=True)
        return min(int(line) for line in done.stdout.split(b"\n") if line.strip()) * 1024 * 1024
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def capacities(spec: SessionSpec) -> dict[str, Capacity]:
    """Return, by stage, the memory of what will run it, where that is known: a named card, a GPU or RAM here."""
    stages = spec.with_resources().stages
    known = {stage.name: _capacity(spec.launcher_of(stage.name), stage) for stage in stages}
    return {name: capacity for name, capacity in known.items() if capacity is not None}


def _capacity(launcher: str, stage: Stage) -> Capacity | None:
    device, resources = str(getattr(stage.parameters, "device", "auto")), stage.resources
    card = resources.gpu if resources is not None else None
    if card is not None and device != "cpu":
        memory = CARD_GB.get(card)
        return None if memory is None else Capacity(f"a card of kind {card}", memory * _GB, gpu=True)
    if launcher != "local":
        return None
    if device != "cpu" and gpus():
        memory = card_bytes()
        return None if memory is None else Capacity("the GPU of this machine", memory, gpu=True)
    return None if device == "cuda" else Capacity("this machine", memory_bytes(), gpu=False)


def require(resources: Resources | None, parameters: Mapping[str, Any], where: str) -> None:
    """Raise Blocked if this machine has too little for a stage's resources, or no GPU for its parameters."""
    if resources is not None and (lacks := lacking(resources)):
        raise BlockedError(
            f"this machine has {', '.join(lacks)}",
            where=where,
            hint="use another `launcher:`, ask for less under `resources:`, or resume on a larger machine",
        )
    if parameters.get("device") == "cuda" and not gpus():
        hint = "take another `--profile` or `launcher:`, or resume on a machine with a GPU"
        raise BlockedError("this machine has no NVIDIA GPU, the stage has device: cuda", where=where, hint=hint)


def lacking(resources: Resources) -> list[str]:
    """Return what this machine has too little of, each with both figures; empty if it suffices."""
    memory = memory_bytes() / _GB
    pairs = (
        ("GPUs", gpus(), resources.gpus, "g"),
        ("cores", cpus(), resources.cpus, "g"),
        ("GB of memory", memory, resources.memory_gb, ".1f"),
    )
    return [
        f"{has:{form}} of {wanted:g} requested {what}" for what, has, wanted, form in pairs if wanted and wanted > has
    ]
