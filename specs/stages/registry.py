"""What a stage is: its kind, typed parameters, inputs, outputs and gate.

Each kind has one parameter model. Every parameter carries its limits here, so a spec cannot ask for a
temperature of -1 and a builder cannot move one there either.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field

from specs.stages.critique.parameters import (
    CRITIQUE_INSTRUCTIONS_KIND,
    CRITIQUE_RESPONSES_KIND,
    PREFER_KIND,
    PREFER_VERIFIED_KIND,
    REVISE_JUDGED,
    REVISE_KIND,
    CritiqueInstructionsParameters,
    CritiqueInstructionsStage,
    CritiqueResponsesParameters,
    CritiqueResponsesStage,
    Pairing,
    PreferParameters,
    PreferStage,
    PreferVerifiedParameters,
    PreferVerifiedStage,
    ReviseParameters,
    ReviseStage,
)
from specs.stages.evaluation.parameters import (
    CHOOSE_KIND,
    COMPARE_KIND,
    CONVERSE_KIND,
    EVALUATE_KIND,
    PERPLEXITY_KIND,
    ChooseParameters,
    ChooseStage,
    CompareParameters,
    CompareStage,
    ConverseParameters,
    ConverseStage,
    EvaluateParameters,
    EvaluateStage,
    PerplexityParameters,
    PerplexityStage,
)
from specs.stages.finetuning.parameters import DPO_KIND, SFT_KIND, DpoParameters, DpoStage, SftParameters, SftStage
from specs.stages.generation.parameters import (
    GUARD_KIND,
    INSTRUCT_KIND,
    RESPOND_KIND,
    GenerateParameters,
    GenerateStage,
    GuardParameters,
    GuardStage,
    InstructParameters,
    InstructStage,
    RespondParameters,
    RespondStage,
)
from specs.stages.kind import StageKind
from specs.stages.packaging.parameters import PackageParameters, PackageStage
from specs.stages.recipes.parameters import RecipeParameters, RecipeStage
from specs.stages.stage import FOLDERS, ArtifactKind, Criterion, Gate, Name, Range, Reference, StageBase

HELDOUT_READERS: tuple[Kind, ...] = ("evaluate", "perplexity", "choose", "compare", "converse", "package")


__all__ = [
    "FOLDERS",
    "PARAMETERS",
    "STAGE_KINDS",
    "AnyStage",
    "ArtifactKind",
    "ChooseParameters",
    "ChooseStage",
    "CompareParameters",
    "CompareStage",
    "ConverseParameters",
    "ConverseStage",
    "Criterion",
    "CritiqueInstructionsParameters",
    "CritiqueInstructionsStage",
    "CritiqueResponsesParameters",
    "CritiqueResponsesStage",
    "ReviseParameters",
    "ReviseStage",
    "PreferParameters",
    "PreferStage",
    "PreferVerifiedParameters",
    "PreferVerifiedStage",
    "DpoParameters",
    "DpoStage",
    "EvaluateParameters",
    "EvaluateStage",
    "Gate",
    "GenerateParameters",
    "GenerateStage",
    "GuardParameters",
    "GuardStage",
    "INSTRUCT_UNSAID",
    "InstructParameters",
    "InstructStage",
    "Kind",
    "Name",
    "PackageParameters",
    "PackageStage",
    "Parameters",
    "Range",
    "PerplexityParameters",
    "PerplexityStage",
    "RecipeParameters",
    "RecipeStage",
    "Reference",
    "RespondParameters",
    "RespondStage",
    "SftParameters",
    "SftStage",
    "Stage",
    "StageBase",
    "StageKind",
    "inputs_of",
    "outputs_of",
    "resolve_parameters",
]


Kind = Literal[
    "guard",
    "instruct",
    "respond",
    "critique_instructions",
    "critique_responses",
    "revise",
    "prefer",
    "prefer_verified",
    "generate",
    "sft",
    "dpo",
    "evaluate",
    "perplexity",
    "choose",
    "compare",
    "converse",
    "package",
    "recipe",
]

INSTRUCT_UNSAID: tuple[Kind, ...] = ("generate", "sft", "evaluate", "package")
"""Kinds whose orders say it of a base model only: those of an instruct model keep the digests they had before."""


Parameters = (
    GuardParameters
    | InstructParameters
    | RespondParameters
    | CritiqueInstructionsParameters
    | CritiqueResponsesParameters
    | ReviseParameters
    | PreferParameters
    | PreferVerifiedParameters
    | GenerateParameters
    | SftParameters
    | DpoParameters
    | EvaluateParameters
    | PerplexityParameters
    | ChooseParameters
    | CompareParameters
    | ConverseParameters
    | PackageParameters
    | RecipeParameters
)


STAGE_KINDS: dict[Kind, StageKind] = {
    "guard": GUARD_KIND,
    "instruct": INSTRUCT_KIND,
    "respond": RESPOND_KIND,
    "critique_instructions": CRITIQUE_INSTRUCTIONS_KIND,
    "critique_responses": CRITIQUE_RESPONSES_KIND,
    "revise": REVISE_KIND,
    "prefer": PREFER_KIND,
    "prefer_verified": PREFER_VERIFIED_KIND,
    "generate": StageKind(
        job="training.jobs.generation.generate:generate",
        inputs={"model": "checkpoint", "prompts": "items"},
        outputs={"rows": "rows", "accepted": "examples"},
    ),
    "sft": SFT_KIND,
    "dpo": DPO_KIND,
    "evaluate": EVALUATE_KIND,
    "perplexity": PERPLEXITY_KIND,
    "choose": CHOOSE_KIND,
    "compare": COMPARE_KIND,
    "converse": CONVERSE_KIND,
    "package": StageKind(
        job="training.jobs.packaging.package:package",
        inputs={"model": "checkpoint", "items": "items"},
        outputs={"rows": "rows", "package": "checkpoint"},
    ),
    "recipe": StageKind(
        job="sessions.jobs.sandbox.recipe_job:recipe", inputs={}, outputs={"rows": "rows", "files": "files"}
    ),
}


PARAMETERS: dict[Kind, type[Parameters]] = {
    "guard": GuardParameters,
    "instruct": InstructParameters,
    "respond": RespondParameters,
    "critique_instructions": CritiqueInstructionsParameters,
    "critique_responses": CritiqueResponsesParameters,
    "revise": ReviseParameters,
    "prefer": PreferParameters,
    "prefer_verified": PreferVerifiedParameters,
    "generate": GenerateParameters,
    "sft": SftParameters,
    "dpo": DpoParameters,
    "evaluate": EvaluateParameters,
    "perplexity": PerplexityParameters,
    "choose": ChooseParameters,
    "compare": CompareParameters,
    "converse": ConverseParameters,
    "package": PackageParameters,
    "recipe": RecipeParameters,
}


AnyStage = (
    GuardStage
    | InstructStage
    | RespondStage
    | CritiqueInstructionsStage
    | CritiqueResponsesStage
    | ReviseStage
    | PreferStage
    | PreferVerifiedStage
    | GenerateStage
    | SftStage
    | DpoStage
    | EvaluateStage
    | PerplexityStage
    | ChooseStage
    | CompareStage
    | ConverseStage
    | PackageStage
    | RecipeStage
)

Stage = Annotated[AnyStage, Field(discriminator="kind")]

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def inputs_of(kind: Kind, parameters: Parameters) -> dict[str, ArtifactKind]:
    """Return what a stage reads: role -> artifact kind. A recipe reads what its stage names, under any role."""
    judged = isinstance(parameters, ReviseParameters) and parameters.judge is not None
    return STAGE_KINDS[kind].inputs | (REVISE_JUDGED.inputs if judged else {})


def outputs_of(kind: Kind, parameters: Parameters) -> dict[str, ArtifactKind]:
    """Return what a stage leaves: role -> artifact kind.

    Only where that is registered, a recipe leaves a checkpoint, a stage that makes pairs those it did not keep, and one
    that revises what its judge said.
    """
    trained = isinstance(parameters, RecipeParameters) and parameters.trains is not None
    found = dict(STAGE_KINDS[kind].outputs)
    if trained:
        found["checkpoint"] = "checkpoint"
    if isinstance(parameters, Pairing) and parameters.keeps_dropped:
        found["dropped"] = "rows"
    if isinstance(parameters, ReviseParameters) and parameters.judge is not None:
        found |= REVISE_JUDGED.outputs
    return found


def resolve_parameters(stage: AnyStage, changes: dict[str, Any]) -> Parameters:
    """Return the stage's parameters with ``changes`` applied, each inside its registered range.

    Code is a change like any other: its digest is part of the parameters, so a grant is for that code and no other.

    Raises:
        ValueError: a change names no range of this stage, leaves its range or breaks the parameter's own limits; code
            is given where the stage does not allow it, or is missing where the stage runs nothing else.
    """
    if stage.kind == "recipe" and "code" not in changes:
        raise ValueError(f"stage '{stage.name}' runs code, and none was handed in")
    for name, value in changes.items():
        if name == "code":
            _require_code(stage, value)
            continue
        allowed = stage.ranges.get(name)
        if allowed is None:
            raise ValueError(f"'{name}' has no allowed range in stage '{stage.name}'")
        if isinstance(value, bool) or not isinstance(value, int | float) or not allowed.holds(value):
            raise ValueError(f"{name} = {value!r} leaves the allowed range [{allowed.min:g}, {allowed.max:g}]")
    merged = stage.parameters.model_dump() | changes
    return PARAMETERS[stage.kind].model_validate(merged)


def _require_code(stage: AnyStage, value: Any) -> None:
    if stage.kind != "recipe" or not stage.allow_code:
        raise ValueError(f"stage '{stage.name}' ({stage.kind}) does not allow code")
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ValueError(f"code = {value!r} is not the digest of a script that was handed in")
