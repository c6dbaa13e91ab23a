"""What a stage is: its kind, typed parameters, inputs, outputs and gate.

Each kind has one parameter model. Every parameter carries its limits here, so a spec cannot ask for a
temperature of -1 and a builder cannot move one there either.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from specs.digests import Contract, Digest
from specs.kinds_critics import (
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
from specs.kinds_evaluation import (
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
    Stop,
    Wrapper,
    require_prompt,
)
from specs.kinds_text import (
    GUARD_KIND,
    INSTRUCT_KIND,
    RESPOND_KIND,
    GuardParameters,
    GuardStage,
    InstructParameters,
    InstructStage,
    RespondParameters,
    RespondStage,
    Sampling,
)
from specs.kinds_training import DPO_KIND, SFT_KIND, DpoParameters, DpoStage, SftParameters, SftStage
from specs.stage_parts import (
    FOLDERS,
    ArtifactKind,
    Criterion,
    Gate,
    Name,
    Placed,
    Range,
    Reference,
    StageBase,
    StageKind,
)

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


class GenerateParameters(Sampling):
    """Sample completions from the model itself; the verifier decides which are kept."""

    samples_per_prompt: Annotated[int, Field(ge=1, le=256)] = 4
    max_prompts: Annotated[int, Field(ge=1)] | None = None
    """Use only the first this many prompts, spread evenly over constraint kinds (for a pilot)."""
    temperature: Annotated[float, Field(gt=0, le=2)] = 0.8
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.95
    max_new_tokens: Annotated[int, Field(ge=1, le=4096)] = 64
    worked_example: bool = True
    """Show one worked example of the format while sampling. It is never part of a training row."""
    wrapper: Wrapper | None = Field(default=None, exclude_if=lambda given: given is None)
    """With ``{prompt}`` where the prompt stands: the model goes on with this bare text, whatever its kind. A worked
    example stands before it in the same form."""
    response_end: Stop | None = Field(default=None, exclude_if=lambda given: given is None)
    """What ends the worked example's answer; with ``wrapper`` only, and one of ``stops``."""
    stops: tuple[Stop, ...] = Field(default=(), exclude_if=lambda given: not given)
    """Strings that end a sample; they and what follows them are not part of it."""
    batch_size: Annotated[int, Field(ge=1, le=1024)] = 32
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0

    @model_validator(mode="after")
    def _form_fits(self) -> Self:
        require_prompt(self.wrapper)
        if self.response_end is not None and (self.wrapper is None or not self.worked_example):
            raise ValueError("response_end ends a worked example in a wrapper: it needs both")
        if self.response_end is not None and self.response_end not in self.stops:
            raise ValueError("response_end is what the model learns to end with: name it among stops too")
        return self


class PackageParameters(Placed):
    """Save the model for use, reload it in a fresh process and compare greedy outputs."""

    probe_items: Annotated[int, Field(ge=1, le=1000)] = 10
    max_new_tokens: Annotated[int, Field(ge=1, le=4096)] = 64
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


class RecipeParameters(Contract):
    """Run a script of the builder in a sandbox; what it may use of the machine is registered here."""

    code: Digest | None = None
    """Digest of the script. The builder hands it in; a spec does not give it."""
    memory_mb: Annotated[int, Field(ge=64, le=1_048_576)] = 2048
    """Of all its processes together. What it writes to /out, /tmp and /dev/shm is in memory too, and not in this."""
    output_mb: Annotated[int, Field(ge=1, le=65536)] = 64
    """The most that /out can hold; /tmp and /dev/shm can hold as much again, each."""
    processes: Annotated[int, Field(ge=1, le=4096)] = 64
    """Threads are counted too."""
    gpu: bool = False
    """Whether it may use the machine's NVIDIA GPUs."""
    trains: Name | None = Field(default=None, exclude_if=lambda given: given is None)
    """The input, a checkpoint, that the script trains: what it leaves in the folder ``checkpoint`` of /out is then
    taken over as output ``checkpoint``, if it is the same model with other weights. None: it leaves nothing to use."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


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
        job="training.stages.generate:generate",
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
        job="training.stages.package:package",
        inputs={"model": "checkpoint", "items": "items"},
        outputs={"rows": "rows", "package": "checkpoint"},
    ),
    "recipe": StageKind(job="sessions.jobs.recipe:recipe", inputs={}, outputs={"rows": "rows", "files": "files"}),
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


class GenerateStage(StageBase):
    """A ``generate`` stage."""

    kind: Literal["generate"]
    parameters: GenerateParameters = GenerateParameters()


class PackageStage(StageBase):
    """A ``package`` stage."""

    kind: Literal["package"]
    parameters: PackageParameters = PackageParameters()


class RecipeStage(StageBase):
    """A ``recipe`` stage."""

    kind: Literal["recipe"]
    parameters: RecipeParameters = RecipeParameters()


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
