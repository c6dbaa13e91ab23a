"""The kinds that judge text and make pairs of it: critics, revisions, preferences."""

from __future__ import annotations

from specs.stages.base.artifacts import Example, Item, Preference
from specs.stages.base.kind import ConditionalPorts, LogprobOutputs, RequiredOutput, StageKind
from specs.stages.critique import parameters, rows
from specs.stages.critique.metrics import (
    BEST_OF_N_METRICS,
    INSTRUCTION_METRICS,
    RESPONSE_METRICS,
    REVISE_METRICS,
    VERIFIED_METRICS,
)

_DROPPED = ConditionalPorts("keeps_dropped", outputs={"dropped": "rows"})

CRITIQUE_INSTRUCTIONS = StageKind(
    name="critique_instructions",
    parameters=parameters.CritiqueInstructionsParameters,
    inputs={"model": "checkpoint", "items": "items", "calibration": "items"},
    outputs={"rows": "rows", "calibration": "rows", "accepted": "items"},
    rows={"rows": rows.CritiqueRow, "calibration": rows.CalibrationRow, "accepted": Item},
    metrics=INSTRUCTION_METRICS,
    job="training.jobs.critique.critic_stage:critique_instructions",
    logprob_outputs=LogprobOutputs("training.jobs.critique.critic_stage:scored_instructions", ("rows", "calibration")),
    judge="reviews.stages.critique.measure",
    selects=True,
    required_output=RequiredOutput("accepted", Item),
    review_focus=(
        "kept and dropped: would you have decided alike in the sampled rows",
        "the critic: does its calibration show that it tells good from bad, in every kind",
        "what the kept ones have in common that no one asked for",
    ),
)

CRITIQUE_RESPONSES = StageKind(
    name="critique_responses",
    parameters=parameters.CritiqueResponsesParameters,
    inputs={"model": "checkpoint", "examples": "examples", "calibration": "items"},
    outputs={"rows": "rows", "calibration": "rows", "accepted": "examples"},
    rows={"rows": rows.CritiqueRow, "calibration": rows.CalibrationRow, "accepted": Example},
    metrics=RESPONSE_METRICS,
    job="training.jobs.critique.critic_stage:critique_responses",
    logprob_outputs=LogprobOutputs("training.jobs.critique.critic_stage:scored_responses", ("rows", "calibration")),
    judge="reviews.stages.critique.measure",
    selects=True,
    required_output=RequiredOutput("accepted", Example),
    review_focus=(
        "kept and dropped: would you have decided alike in the sampled rows",
        "the critic: does its calibration show that it tells good from bad, in every kind",
        "length: are longer or shorter responses kept more often",
    ),
)

REVISE = StageKind(
    name="revise",
    parameters=parameters.ReviseParameters,
    inputs={"model": "checkpoint", "examples": "examples", "constitution": "constitution"},
    outputs={"rows": "rows", "preferences": "preferences", "examples": "examples"},
    conditional_ports=(
        _DROPPED,
        ConditionalPorts(
            "judge",
            inputs={"judge": "checkpoint", "calibration": "items"},
            outputs={"comparisons": "rows", "calibration": "rows"},
        ),
    ),
    rows={
        "rows": rows.RevisionRow,
        "preferences": Preference,
        "examples": Example,
        "dropped": rows.DroppedPair,
        "comparisons": rows.ComparisonRow,
        "calibration": rows.JudgeCalibrationRow,
    },
    metrics=REVISE_METRICS,
    job="training.jobs.critique.revise:revise",
    witness_prompts="training.jobs.critique.revise:build_witness_prompts",
    logprob_outputs=LogprobOutputs("training.jobs.critique.revise:build_scorings", ("comparisons", "calibration")),
    judge="reviews.stages.critique.measure",
    samples=True,
    required_output=RequiredOutput("preferences", Preference),
    review_focus=(
        "revisions: do they fix what the critique names, and nothing else",
        "critiques: are they about this response, or the same words for all",
        "pairs: is the revision better, or only longer, or a refusal",
    ),
)

BEST_OF_N = StageKind(
    name="best_of_n",
    parameters=parameters.BestOfNParameters,
    inputs={"model": "checkpoint", "judge": "checkpoint", "prompts": "items", "calibration": "items"},
    outputs={"rows": "rows", "comparisons": "rows", "calibration": "rows", "preferences": "preferences"},
    conditional_ports=(_DROPPED,),
    rows={
        "rows": rows.CandidateRow,
        "comparisons": rows.ComparisonRow,
        "calibration": rows.JudgeCalibrationRow,
        "preferences": Preference,
        "dropped": rows.DroppedPair,
    },
    metrics=BEST_OF_N_METRICS,
    job="training.jobs.critique.best_of_n:prefer",
    witness_prompts="training.jobs.critique.best_of_n:build_witness_prompts",
    logprob_outputs=LogprobOutputs("training.jobs.critique.best_of_n:build_scorings", ("comparisons", "calibration")),
    judge="reviews.stages.critique.measure",
    samples=True,
    required_output=RequiredOutput("preferences", Preference),
    review_focus=(
        "length of chosen against rejected",
        "order: does the choice change when the answers are swapped",
        "who judges whom: of what family are judge and author",
        "pairs whose two sides say the same",
    ),
)

BEST_OF_N_VERIFIED = StageKind(
    name="best_of_n_verified",
    parameters=parameters.BestOfNVerifiedParameters,
    inputs={"samples": "rows", "prompts": "items"},
    outputs={"rows": "rows", "preferences": "preferences"},
    conditional_ports=(_DROPPED,),
    rows={"rows": rows.VerifiedRow, "preferences": Preference, "dropped": rows.DroppedPair},
    metrics=VERIFIED_METRICS,
    job="training.jobs.critique.best_of_n_verified:prefer_verified",
    judge="reviews.stages.critique.measure",
    pairs_samples=True,
    without_precision=True,
    loads_model=False,
    required_output=RequiredOutput("preferences", Preference),
    review_focus=(
        "length of chosen against rejected",
        "rejected answers: are they wrong, or right in a form that the verifier does not read",
        "which prompts are left: easy ones alone, or those with answers of both sorts",
    ),
)

KINDS = (CRITIQUE_INSTRUCTIONS, CRITIQUE_RESPONSES, REVISE, BEST_OF_N, BEST_OF_N_VERIFIED)
