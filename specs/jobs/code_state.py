"""Which code ran: its digest, and the commit it is of, or why that is not known."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from specs.system.digests import Contract, Digest


class CodeState(Contract):
    """The state of Peergate's own code when a session or a job began, as the process that runs it found it."""

    digest: Digest
    """Of the files that jobs run: ``training`` and ``specs``, rubrics included."""
    version: str
    """Of the installed distribution; empty if it is not installed."""
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")] | None
    branch: str | None
    """None when the commit is checked out without a branch, or is not known."""
    changed: Annotated[int, Field(ge=0)] | None
    """Files of the five packages that differ from the commit or are not in it; None when that is not known."""
    unknown: str = ""
    """Why commit and changes are not known."""

    @property
    def state(self) -> Literal["clean", "changed", "unknown"]:
        """Whether the code is exactly that of the commit."""
        if self.commit is None or self.changed is None:
            return "unknown"
        return "changed" if self.changed else "clean"

    def __str__(self) -> str:
        if self.commit is None or self.changed is None:
            of = f"version {self.version}" if self.version else "no version"
            return f"unknown commit ({self.unknown or 'not told'}), {of}, digest {self.digest}"
        branch = f" of {self.branch}" if self.branch else ""
        files = f" with {self.changed} changed files" if self.changed else ""
        return f"commit {self.commit}{branch}{files}, digest {self.digest}"


class MachineUse(Contract):
    """What a job used of the graphics processors it saw."""

    cuda: str | None
    """The CUDA version that torch was built for; None when the job ran on the CPU."""
    gpus: Annotated[int, Field(ge=0)]
    """Devices the job could see; 0 when it ran on the CPU."""
    gpu_memory_mb: float | None
    """MiB of the device it ran on."""
    peak_gpu_mb: float | None
    """MiB that torch had reserved on it at most."""
    gpu_hours: float
    """Wall time of the job times ``gpus``, in hours: what a machine with as many is held for."""
