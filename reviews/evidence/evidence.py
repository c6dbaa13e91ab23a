"""Everything the measurer and the checks may look at for one attempt: files and registered facts, no builder prose."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from reviews.evidence.weight_lineage import Lineage
from specs.jobs.grant_and_claim import Claim, Grant
from specs.jobs.job_records import Challenge, ExitRecord, HeldoutUse, Manifest, ObservedRuntime
from specs.session.design import ResolvedDesign
from specs.stages.base.artifacts import Item
from specs.stages.base.metric import MetricSet
from specs.stages.registry import Stage
from specs.system.digests import Contract
from specs.system.errors import EvidenceMissing


class ArmEvidence(NamedTuple):
    """The accepted attempt of another stage that this one is compared with."""

    rows: Path | None
    manifest: Manifest | None
    parameters: dict[str, Any]


class WitnessEvidence(NamedTuple):
    """A witness that was asked to read rows of the attempt again, and what it left."""

    challenge: Challenge
    rows: Path | None
    """None if it left none that count."""
    manifest: Manifest | None
    why: str
    """Why it left none, in untrusted words; empty if it ended well."""


Parameters = TypeVar("Parameters", bound=Contract)


@dataclass(frozen=True)
class Evidence:
    """The evidence of one attempt. What is absent is None or missing from the mapping, never made up."""

    resolved: ResolvedDesign
    """The spec as read back from the trail's ``open`` entry."""
    registered: str
    """The registration digest in the ``open`` entry."""
    stage: Stage
    attempt: int
    grant: Grant | None
    parameters: dict[str, Any]
    """The granted parameters, by name."""
    heldout: tuple[Item, ...]
    heldout_digest: str
    """The digest of the held-out file as it is now."""
    data: dict[str, tuple[Item, ...]]
    measured_by: str | None = None
    """The digest of the measuring code that is registered; None in a trail that does not tell it."""
    measured_files: dict[str, str] = field(default_factory=dict[str, str])
    """Its files with their digests, where they are kept."""
    manifest: Manifest | None = None
    exit: ExitRecord | None = None
    observed: ObservedRuntime | None = None
    """How long the job can have run, by the orchestrator's clocks."""
    launched: float | None = None
    """When the trail notes its launch, in seconds since 1970."""
    ended: float | None = None
    """When the trail notes its end."""
    outputs: dict[str, Path] = field(default_factory=dict[str, Path])
    """Output name -> file or folder, for outputs whose digest matches the manifest."""
    output_digests: dict[str, str] = field(default_factory=dict[str, str])
    inputs: dict[str, Path] = field(default_factory=dict[str, Path])
    baseline_rows: Path | None = None
    """Raw rows of the analysis' baseline arm (treatment stage only)."""
    baseline_manifest: Manifest | None = None
    baseline_parameters: dict[str, Any] = field(default_factory=dict[str, Any])
    arms: dict[str, ArmEvidence] = field(default_factory=dict[str, ArmEvidence])
    """The stages that the registered drift of this stage is measured against, by name."""
    withdrawn: str = ""
    """Why the builder ended the job itself; empty if it did not."""
    log_tail: str = ""
    log_left: str | None = None
    """The digest of the log as the job left it."""
    beside: tuple[str, ...] = ()
    """Names of files among the outputs that the stage does not have, untrusted."""
    ordered_code: str | None = None
    """The digest of the code that the order names: that of the orchestrator."""
    code: str = ""
    """The script that was granted, if the stage runs one."""
    lineages: dict[str, Lineage] = field(default_factory=dict[str, Lineage])
    """The origin of the job's checkpoints, by role."""
    attempts: tuple[dict[str, Any], ...] = ()
    """One small record per attempt of this stage so far: attempt, parameters, outcome, metrics of interest."""
    evaluations_of_heldout: int = 0
    """Attempts of evaluate stages on the registered split, this one included."""
    heldout_elsewhere: HeldoutUse | None = None
    """Evaluations of the same split by other sessions of the workspace, as noted when the job ended."""
    claims: tuple[Claim, ...] | None = None
    """What the builder states in numbers; None when it has not handed the attempt in."""
    sent_back: int = 0
    """How many submissions were refused before, for claims the rows contradict."""
    witness: WitnessEvidence | None = None
    """What a witness read of the rows; None where none was asked to."""
    required_families: dict[str, str] = field(default_factory=dict[str, str])
    """Families of checks that have to pass here, each with the defect at another stage that scheduled them."""
    earlier: dict[str, MetricSet] = field(default_factory=dict[str, MetricSet])
    """Metrics of accepted stages, by stage name."""

    def require_parameters(self) -> dict[str, Any]:
        """Return the granted parameters.

        Raises:
            EvidenceMissing: the order of the attempt is not on record.
        """
        if not self.parameters:
            raise EvidenceMissing("the order of the attempt is not on record")
        return self.parameters

    def parse_parameters(self, model: type[Parameters]) -> Parameters:
        """Return the granted parameters in their form; errors as :meth:`ordered`."""
        return model.model_validate(self.require_parameters())
