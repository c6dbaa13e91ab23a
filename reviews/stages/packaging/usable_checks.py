"""Are the files of a checkpoint whole, before anything is spent on it? Files are read only, nothing is loaded."""

from __future__ import annotations

from pathlib import Path

from reviews.checks.definition import CheckOutcome, CheckRegistry
from reviews.evidence.evidence import Evidence
from specs.stages.base.kind import StageKind
from specs.stages.base.metric import MetricSet
from specs.stages.registry import kind_of, outputs_of
from specs.system.errors import EvidenceMissing
from training.rules.packaging.flaw import Flaw
from training.rules.packaging.ship_rules import check_files

_NEVER_EXCUSED = ("not_finite", "too_large", "code", "pickle", "remote_code", "unreadable", "missing_tensor")
"""What is wrong with a checkpoint even where its base has it."""
_ZERO = "all_zero"
"""A script may switch a layer off; a trainer of Peergate's never leaves a layer of zeros."""


def _leaves_checkpoint(kind: StageKind) -> bool:
    return any(
        "checkpoint" in artifact_kinds.values()
        for artifact_kinds in (kind.outputs, *(more.outputs for more in kind.conditional_ports))
    )


CHECKS = CheckRegistry(_leaves_checkpoint)


@CHECKS.add(
    "checkpoint.files",
    "The checkpoint can be used: its files are whole and fit each other",
    source="a checkpoint that trained well and could not be loaded, encoded for, or stopped",
    reads_weights=True,
)
def _check_files(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Apply the rules of the ship gate to every checkpoint that the stage leaves."""
    artifact_kinds = outputs_of(evidence.stage.kind, evidence.stage.parameters)
    names = [name for name, kind in artifact_kinds.items() if kind == "checkpoint"]
    if not names:
        return CheckOutcome("NOT_APPLICABLE", "the stage leaves no checkpoint")
    if missing := [name for name in names if name not in evidence.outputs]:
        raise EvidenceMissing(f"checkpoint '{missing[0]}' is missing")
    base = evidence.inputs.get("model")
    base = base if base is not None and base.is_dir() else None
    flaws = [flaw for name in names for flaw in _flaws(evidence.outputs[name], base)]
    if any(flaw.name not in _NEVER_EXCUSED for flaw in flaws):
        # A script names its inputs as it likes.
        sources = [folder for folder in evidence.inputs.values() if (folder / "config.json").is_file()]
        had = {flaw[:3] for folder in sources for flaw in _flaws(folder, None) if flaw.name not in _NEVER_EXCUSED}
        inherited = [flaw for flaw in flaws if flaw[:3] in had]
        if inherited and len(inherited) == len(flaws):
            first = flaws[0]
            message = f"{first.line()}: as the model that it was made of"
            return CheckOutcome("WARN", message, float(len(inherited)), _rows(inherited))
        flaws = [flaw for flaw in flaws if flaw not in inherited]
    if kind_of(evidence.stage).runs_code and flaws and {flaw.name for flaw in flaws} == {_ZERO}:
        return CheckOutcome("WARN", f"{flaws[0].line()}: the script may have meant it", float(len(flaws)), _rows(flaws))
    return report_flaws(tuple(flaws), "the checkpoint")


def _flaws(folder: Path, base: Path | None) -> list[Flaw]:
    return [flaw for outcome in check_files(folder, base, trained=False) for flaw in outcome.flaws]


def report_flaws(flaws: tuple[Flaw, ...], what: str) -> CheckOutcome:
    """Return what a check says of flaws: the first in words, all of them as rows."""
    if not flaws:
        return CheckOutcome("PASS", f"{what} passes every rule that applies to its files", 0.0)
    first, *others = flaws
    more = f" and {len(others)} more" if others else ""
    return CheckOutcome("FAIL", f"{first.line()}{more}", float(len(flaws)), _rows(list(flaws)), repairable=False)


def _rows(flaws: list[Flaw]) -> tuple[dict[str, str], ...]:
    return tuple({"layer": flaw.layer, "file": flaw.file, "flaw": flaw.description, "fix": flaw.fix} for flaw in flaws)
