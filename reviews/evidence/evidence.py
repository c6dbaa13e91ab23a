"""Everything the measurer and the checks may look at for one attempt: files and registered facts, no builder prose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from reviews.evidence.weight_lineage import Lineage
from specs.jobs.grant_and_claim import Claim, Grant
from specs.jobs.job_records import Challenge, ExitRecord, HeldoutUse, Manifest, ObservedRuntime
from specs.session.design import ResolvedDesign
from specs.stages.base.artifacts import Example, Item, Preference, earlier_turn_texts
from specs.stages.base.metric import MetricSet
from specs.stages.registry import Stage, kind_of
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
    """The digest of the measuring code that is registered; None in a trail that does not record it."""
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
    constitution: str = ""
    """The text of the registered constitution."""

    @property
    def reserved_items(self) -> tuple[Item, ...]:
        """The items of the held-out split and of the transfer split: nothing that is trained on may hold them."""
        return _both_splits(self.resolved, self.heldout, self.data)

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


def _both_splits(
    resolved: ResolvedDesign, heldout: tuple[Item, ...], data: Mapping[str, tuple[Item, ...]]
) -> tuple[Item, ...]:
    transfer = resolved.spec.analysis.transfer
    return (*heldout, *(data.get(transfer.data, ()) if transfer else ()))


class DesignEvidence(NamedTuple):
    """What a design check may look at."""

    resolved: ResolvedDesign
    heldout: tuple[Item, ...]
    data: Mapping[str, tuple[Item, ...]]
    """The items of each data file; for examples and pairs, their prompts."""
    costs: Mapping[str, float]
    """The most that one attempt of each stage costs, in USD."""
    brought: Mapping[str, Sequence[Example | Preference]] = {}
    """The examples and pairs of each data file that holds some."""
    constitution: str = ""
    """The text of the registered constitution."""

    @property
    def reserved_items(self) -> tuple[Item, ...]:
        """The items of the held-out split and of the transfer split."""
        return _both_splits(self.resolved, self.heldout, self.data)

    def texts(self) -> tuple[tuple[str, str], ...]:
        """Return what they show a model as answers, and the turns before, each with its file and line."""
        return tuple(
            (f"{name}:{number}", text)
            for name, rows in self.brought.items()
            for number, row in enumerate(rows, 1)
            for text in (*_list_answers(row), *earlier_turn_texts(row))
        )

    def select_training_data(self) -> dict[str, tuple[Item, ...]]:
        """Return the data files that training may see: not labels, nor files that only measuring stages read."""
        spec = self.resolved.spec
        readers: dict[str, list[bool]] = {}
        for stage in spec.stages:
            for reference in stage.inputs.values():
                readers.setdefault(reference, []).append(kind_of(stage).reads_heldout)
        labels = spec.evaluation.labelled if spec.evaluation else None
        measured = {
            name
            for name in self.data
            if all(readers.get(f"data.{name}", ())) and (f"data.{name}" in readers or name == labels)
        }
        out = measured | self.list_curated_files() | spec.hidden_data()
        return {name: items for name, items in sorted(self.data.items()) if name not in out}

    def list_curated_files(self) -> set[str]:
        """Return the data files that scripts only curate: what those stages keep is judged at their gates."""
        texts: set[str] = set()
        for name in self.data:
            readers = [stage for stage in self.resolved.spec.stages if f"data.{name}" in stage.inputs.values()]
            if readers and all(kind_of(stage).runs_code and _only_curates(stage, f"data.{name}") for stage in readers):
                texts.add(name)
        return texts


def _list_answers(row: Example | Preference) -> tuple[str, ...]:
    return (row.completion,) if isinstance(row, Example) else (row.chosen, row.rejected)


def _only_curates(stage: Stage, reference: str) -> bool:
    """Return whether a stage reads some data only under the role that it curates."""
    return [role for role, named in stage.inputs.items() if named == reference] == [stage.parameters.curates]
