"""The kinds that write text: ``base_model_check``, ``self_instruct``, ``sample_responses``, ``generate``."""

from __future__ import annotations

from specs.stages.base.artifacts import Example, Item
from specs.stages.base.kind import RequiredOutput, StageKind
from specs.stages.generation import parameters, rows
from specs.stages.generation.metrics import GENERATE_METRICS, INSTRUCT_METRICS, RESPONSE_METRICS, SENTINEL_METRICS

BASE_MODEL_CHECK = StageKind(
    name="base_model_check",
    parameters=parameters.BaseModelCheckParameters,
    inputs={"model": "checkpoint", "control": "checkpoint"},
    outputs={"rows": "rows"},
    rows={"rows": rows.BaseModelCheckRow},
    metrics=SENTINEL_METRICS,
    job="training.jobs.generation.base_model_check:check_base_model",
    witness_prompts="training.jobs.generation.base_model_check:build_witness_prompts",
    judge="reviews.stages.generation.base_model_check",
    review_focus=(
        "answers: do they continue the text, or follow instructions",
        "the control: does it show that the test notices a model that follows instructions",
    ),
)

SELF_INSTRUCT = StageKind(
    name="self_instruct",
    parameters=parameters.SelfInstructParameters,
    inputs={"model": "checkpoint", "seeds": "items"},
    outputs={"rows": "rows", "instructions": "items"},
    rows={"rows": rows.SelfInstructRow, "instructions": Item},
    metrics=INSTRUCT_METRICS,
    job="training.jobs.generation.self_instruct:instruct",
    witness_prompts="training.jobs.generation.self_instruct:build_witness_prompts",
    judge="reviews.stages.generation.self_instruct",
    samples=True,
    required_output=RequiredOutput("instructions", Item, count_metric="instructions_left"),
    screened="instructions",
    review_focus=(
        "instructions: clear, answerable, and unlike the seeds and each other",
        "copies of the seeds or of held-out prompts, in other words too",
        "marks of the prompt, several instructions in one, answers in place of instructions",
    ),
)

SAMPLE_RESPONSES = StageKind(
    name="sample_responses",
    parameters=parameters.SampleResponsesParameters,
    inputs={"model": "checkpoint", "instructions": "items"},
    outputs={"rows": "rows", "examples": "examples"},
    rows={"rows": rows.SampleResponsesRow, "examples": Example},
    metrics=RESPONSE_METRICS,
    job="training.jobs.generation.sample_responses:respond",
    witness_prompts="training.jobs.generation.sample_responses:build_witness_prompts",
    judge="reviews.stages.generation.sample_responses",
    samples=True,
    required_output=RequiredOutput("examples", Example),
    review_focus=(
        "responses that are cut off, empty, refused, or continue past their end",
        "marks of the prompt in the text",
        "repeats, and one form of answer for everything",
    ),
)

GENERATE = StageKind(
    name="generate",
    parameters=parameters.GenerateParameters,
    inputs={"model": "checkpoint", "prompts": "items"},
    outputs={"rows": "rows", "accepted": "examples"},
    rows={"rows": rows.GenerationRow, "accepted": Example},
    metrics=GENERATE_METRICS,
    job="training.jobs.generation.generate:generate",
    witness_prompts="training.jobs.generation.generate:build_witness_prompts",
    judge="reviews.stages.generation.generate",
    samples=True,
    open_ended=True,
    sampled_by_task=True,
    required_output=RequiredOutput("accepted", Example),
    examples=("outputs", "accepted"),
    review_focus=(
        "accepted rows: right for the reason that the item asks for",
        "repeats, refusals, copies of examples, marks of the prompt in the text",
        "which kinds of items are accepted, and which never",
    ),
)

KINDS = (BASE_MODEL_CHECK, SELF_INSTRUCT, SAMPLE_RESPONSES, GENERATE)
