"""Is a script's checkpoint the registered model with other weights, trained on training data only?"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from reviews.checks.definition import CheckOutcome, CheckRegistry, join_names, manifest_of
from reviews.checks.leakage_checks import SIMILARITY, overlap_of
from reviews.evidence.evidence import Evidence
from reviews.evidence.heldout_screen import iterate_texts
from reviews.evidence.row_reader import read_objects
from specs.stages.base.metric import MetricSet
from specs.stages.recipes.parameters import RecipeParameters
from specs.system.digests import digest_file
from specs.system.errors import EvidenceMissing
from training.rules.weight_files import REPLACED, WEIGHTS, CheckpointChange, WrongWeights, compare, describing

CHECKS = CheckRegistry(("recipe",))
_SAME = 1e-6
_NONE = "the stage registers no training: what its script leaves is not used"


def trained_role(evidence: Evidence) -> str | None:
    """Return the input that the stage's script trains; None where it trains nothing."""
    parameters = evidence.stage.parameters
    return parameters.trains if isinstance(parameters, RecipeParameters) else None


@CHECKS.add(
    "recipe.checkpoint",
    "The checkpoint is the registered model, trained",
    source="another model under the name of the trained one; weights that never moved",
    reads_weights=True,
)
def _check_checkpoint(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Read the weights of base and checkpoint and compare what differs with what the manifest states."""
    role = trained_role(evidence)
    if role is None:
        return CheckOutcome("NOT_APPLICABLE", _NONE)
    stated = manifest_of(evidence).facts.get("checkpoint")
    base, folder = evidence.inputs.get(role), evidence.outputs.get("checkpoint")
    if not isinstance(stated, dict):
        raise EvidenceMissing("the manifest does not say what was trained")
    if base is None or folder is None or not folder.is_dir() or not base.is_dir():
        raise EvidenceMissing("checkpoint or base is missing")
    if others := _other_files(base, folder):
        return CheckOutcome("FAIL", f"next to the weights, {join_names(others)} differ from the base", repairable=False)
    try:
        change = compare(base, folder)
    except WrongWeights as error:
        return CheckOutcome("FAIL", f"the checkpoint is not '{role}' with other weights: {error}", repairable=False)
    except OSError as error:
        raise EvidenceMissing(f"the weights cannot be read: {error}") from error
    if wrong := _find_misstatement(evidence, role, stated, change):
        return CheckOutcome("FAIL", f"the manifest states {wrong}", repairable=False)
    if not change.changed:
        return CheckOutcome("FAIL", f"all {change.tensors} tensors are those of '{role}': nothing was trained", 0.0)
    if copied := _find_copied_input(evidence, role, folder):
        return CheckOutcome("FAIL", f"the weights are those of the input '{copied}': nothing was trained", change.whole)
    message = (
        f"{change.changed} of {change.tensors} tensors differ from those of '{role}', all together by "
        f"{change.whole:.3g}, most by {change.largest:.3g} in {change.largest_in}; trained by the builder's script "
        f"{stated['code']}"
    )
    if change.whole >= REPLACED:
        return CheckOutcome("WARN", f"{message}: the weights were replaced rather than trained", change.whole)
    return CheckOutcome("PASS", message, change.whole)


def _other_files(base: Path, folder: Path) -> list[str]:
    """Return the files next to the weights that are not the base's, byte for byte, and the missing files."""
    paths = describing(base)
    here = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    here.pop(WEIGHTS, None)
    same = {name for name in paths.keys() & here.keys() if digest_file(paths[name]) == digest_file(here[name])}
    return sorted((paths.keys() | here.keys()) - same)


def _find_misstatement(evidence: Evidence, role: str, stated: dict[str, Any], change: CheckpointChange) -> str:
    """Return the first thing the manifest states otherwise, with both values; empty when all agrees."""
    references = change.as_facts() | {
        "of": evidence.stage.inputs.get(role),
        "base": manifest_of(evidence).inputs.get(role),
        "code": evidence.parameters.get("code"),
    }
    # Where two tensors changed by the same, another machine may name the other one.
    references.pop("largest_change_in")
    for name, value in references.items():
        statement = stated.get(name)
        if isinstance(value, float) and isinstance(statement, int | float):
            agrees = math.isclose(value, statement, rel_tol=_SAME)
        else:
            agrees = statement == value
        if not agrees:
            return f"{name} {statement}, it is {value}"
    return ""


def _find_copied_input(evidence: Evidence, role: str, folder: Path) -> str:
    """Return the other input whose weights the checkpoint holds; empty when there is none."""
    for name, path in sorted(evidence.inputs.items()):
        if name == role or not path.is_dir() or not any(path.glob("*.safetensors")):
            continue
        try:
            if not compare(path, folder).changed:
                return name
        except WrongWeights:
            continue
    return ""


@CHECKS.add(
    "recipe.data", "Nothing held out was given to training", source="training on the test set", limits=SIMILARITY
)
def _check_data(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare every text in what a training script was given with the held-out prompts and right answers."""
    if trained_role(evidence) is None:
        return CheckOutcome("NOT_APPLICABLE", _NONE)
    if not evidence.inputs:
        raise EvidenceMissing("the order of the attempt is not on record")
    prompts = [
        (f"{role}:{number}", text)
        for role, path in sorted(evidence.inputs.items())
        if path.is_file() and evidence.stage.inputs.get(role) != "constitution"
        for number, row in enumerate(_rows(role, path), 1)
        for _, text in iterate_texts(row, role)
    ]
    result = overlap_of(prompts, evidence.reserved_items, evidence.resolved.spec.thresholds)
    return (
        result
        if result.status != "PASS"
        else CheckOutcome("PASS", f"{result.detail}, of {len(prompts)} texts it was given", 0.0)
    )


def _rows(role: str, path: Path) -> tuple[dict[str, Any], ...]:
    return () if not path.stat().st_size else tuple(read_objects(path, f"input '{role}'"))
