"""The kinds that write text: ``guard``, ``instruct``, ``respond``, ``generate``."""

from __future__ import annotations

from specs.stages.artifacts import Example, Item
from specs.stages.generation.metrics import TEXT_METRICS
from specs.stages.generation.parameters import (
    GenerateParameters,
    GuardParameters,
    InstructParameters,
    RespondParameters,
)
from specs.stages.generation.rows import GenerationRow, GuardRow, InstructRow, RespondRow
from specs.stages.kind import Kept, StageKind
from specs.stages.metric import of_scope
from specs.stages.sampling_metrics import SAMPLED_METRICS

GUARD = StageKind(
    name="guard",
    parameters=GuardParameters,
    inputs={"model": "checkpoint", "control": "checkpoint"},
    outputs={"rows": "rows"},
    rows={"rows": GuardRow},
    metrics=of_scope("guard", *TEXT_METRICS),
    job="training.jobs.generation.base_model_check:guard",
    judge="reviews.stages.generation.guard",
)

INSTRUCT = StageKind(
    name="instruct",
    parameters=InstructParameters,
    inputs={"model": "checkpoint", "seeds": "items"},
    outputs={"rows": "rows", "instructions": "items"},
    rows={"rows": InstructRow, "instructions": Item},
    metrics=of_scope("instruct", *TEXT_METRICS, *SAMPLED_METRICS),
    job="training.jobs.generation.self_instruct:instruct",
    judge="reviews.stages.generation.instruct",
    samples=True,
    kept=Kept("instructions", Item, left="instructions_left"),
    screened="instructions",
)

RESPOND = StageKind(
    name="respond",
    parameters=RespondParameters,
    inputs={"model": "checkpoint", "instructions": "items"},
    outputs={"rows": "rows", "examples": "examples"},
    rows={"rows": RespondRow, "examples": Example},
    metrics=of_scope("respond", *TEXT_METRICS, *SAMPLED_METRICS),
    job="training.jobs.generation.sample_responses:respond",
    judge="reviews.stages.generation.respond",
    samples=True,
    kept=Kept("examples", Example),
)

GENERATE = StageKind(
    name="generate",
    parameters=GenerateParameters,
    inputs={"model": "checkpoint", "prompts": "items"},
    outputs={"rows": "rows", "accepted": "examples"},
    rows={"rows": GenerationRow, "accepted": Example},
    metrics=of_scope("generate", *TEXT_METRICS, *SAMPLED_METRICS),
    job="training.jobs.generation.generate:generate",
    judge="reviews.stages.generation.generate",
    samples=True,
    instruct_unsaid=True,
    open_ended=True,
    worked_examples=True,
    sampled_by_task=True,
    kept=Kept("accepted", Example),
    examples=("outputs", "accepted"),
)

KINDS = (GUARD, INSTRUCT, RESPOND, GENERATE)
