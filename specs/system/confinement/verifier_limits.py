"""What a verifier of the user's own may use of the machine; registered with the spec."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from specs.system.digests import Contract


class VerifierLimits(Contract):
    """The limits of a verifier's process."""

    seconds: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """The longest it may take for one answer, of wall time and of processor time."""
    memory_mb: Annotated[int, Field(ge=128, le=1_048_576)] = 512
    """MiB of memory its process may hold."""
    sandbox: bool = True
    """False: it may run where no sandbox can be made, with your rights. The checks then say so."""


class OwnVerifier(VerifierLimits):
    """A task of the user's own: the limits of its verifier, and whether the builder may read it."""

    builder_reads: bool = False
    """Whether the builder may read the task's file."""

    def limits(self) -> VerifierLimits:
        """Return what the order of a job carries."""
        return VerifierLimits(seconds=self.seconds, memory_mb=self.memory_mb, sandbox=self.sandbox)
