"""What a stage kind is."""

from __future__ import annotations

from specs.digests import Contract
from specs.stages.stage import ArtifactKind


class StageKind(Contract):
    """What a kind reads and writes: role -> artifact kind. A recipe reads what its stage names, under any role."""

    job: str
    """The process that carries it out, ``module:function``. A string: contracts import nothing that runs."""
    inputs: dict[str, ArtifactKind]
    outputs: dict[str, ArtifactKind]

    @property
    def module(self) -> str:
        """Return the module that ``python -m`` runs."""
        return self.job.partition(":")[0]
