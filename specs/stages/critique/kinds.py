"""The kinds that judge text and make pairs of it: critics, revisions, preferences."""

from __future__ import annotations

from specs.stages.artifacts import Example, Item, Preference
from specs.stages.critique.metrics import CRITIC_METRICS
from specs.stages.critique.parameters import (
    BestOfNParameters,
    BestOfNVerifiedParameters,
    CritiqueInstructionsParameters,
    CritiqueResponsesParameters,
    ReviseParameters,
)
from specs.stages.critique.rows import (
    CalibrationRow,
    CandidateRow,
    ComparisonRow,
    CritiqueRow,
    DroppedPair,
    JudgeCalibrationRow,
    RevisionRow,
    VerifiedRow,
)
from specs.stages.kind import Added, Kept, StageKind
from specs.stages.metric import of_scope
from specs.stages.sampling_metrics import SAMPLED_METRICS

_DROPPED = Added("keeps_dropped", outputs={"dropped": "rows"})

CRITIQUE_INSTRUCTIONS = StageKind(
    name="critique_instructions",
    parameters=CritiqueInstructionsParameters,
    inputs={"model": "checkpoint", "items": "items", "calibration": "items"},
    outputs={"rows": "rows", "calibration": "rows", "accepted": "items"},
    rows={"rows": CritiqueRow, "calibration": CalibrationRow, "accepted": Item},
    metrics=of_scope("critique_instructions", *CRITIC_METRICS),
    job="training.jobs.critique.critique_instructions:critique_instructions",
    judge="reviews.stages.critique.critique_instructions",
    selects=True,
    kept=Kept("accepted", Item),
)

CRITIQUE_RESPONSES = StageKind(
    name="critique_responses",
    parameters=CritiqueResponsesParameters,
    inputs={"model": "checkpoint", "examples": "examples", "calibration": "items"},
    outputs={"rows": "rows", "calibration": "rows", "accepted": "examples"},
    rows={"rows": CritiqueRow, "calibration": CalibrationRow, "accepted": Example},
    metrics=of_scope("critique_responses", *CRITIC_METRICS),
    job="training.jobs.critique.critique_responses:critique_responses",
    judge="reviews.stages.critique.critique_responses",
    selects=True,
    kept=Kept("accepted", Example),
)

REVISE = StageKind(
    name="revise",
    parameters=ReviseParameters,
    inputs={"model": "checkpoint", "examples": "examples", "constitution": "constitution"},
    outputs={"rows": "rows", "preferences": "preferences", "examples": "examples"},
    added=(
        _DROPPED,
        Added(
            "judge",
            inputs={"judge": "checkpoint", "calibration": "items"},
            outputs={"comparisons": "rows", "calibration": "rows"},
        ),
    ),
    rows={
        "rows": RevisionRow,
        "preferences": Preference,
        "examples": Example,
        "dropped": DroppedPair,
        "comparisons": ComparisonRow,
        "calibration": JudgeCalibrationRow,
    },
    metrics=of_scope("revise", *CRITIC_METRICS, *SAMPLED_METRICS),
    job="training.jobs.critique.revise:revise",
    judge="reviews.stages.critique.revise",
    samples=True,
    kept=Kept("preferences", Preference),
)

BEST_OF_N = StageKind(
    name="best_of_n",
    parameters=BestOfNParameters,
    inputs={"model": "checkpoint", "judge": "checkpoint", "prompts": "items", "calibration": "items"},
    outputs={"rows": "rows", "comparisons": "rows", "calibration": "rows", "preferences": "preferences"},
    added=(_DROPPED,),
    rows={
        "rows": CandidateRow,
        "comparisons": ComparisonRow,
        "calibration": JudgeCalibrationRow,
        "preferences": Preference,
        "dropped": DroppedPair,
    },
    metrics=of_scope("best_of_n", *CRITIC_METRICS, *SAMPLED_METRICS),
    job="training.jobs.critique.best_of_n:prefer",
    judge="reviews.stages.critique.best_of_n",
    samples=True,
    kept=Kept("preferences", Preference),
)

BEST_OF_N_VERIFIED = StageKind(
    name="best_of_n_verified",
    parameters=BestOfNVerifiedParameters,
    inputs={"samples": "rows", "prompts": "items"},
    outputs={"rows": "rows", "preferences": "preferences"},
    added=(_DROPPED,),
    rows={"rows": VerifiedRow, "preferences": Preference, "dropped": DroppedPair},
    metrics=of_scope("best_of_n_verified", *CRITIC_METRICS),
    job="training.jobs.critique.best_of_n_verified:prefer_verified",
    judge="reviews.stages.critique.best_of_n_verified",
    pairs_samples=True,
    without_precision=True,
    loads_model=False,
    kept=Kept("preferences", Preference),
)

KINDS = (CRITIQUE_INSTRUCTIONS, CRITIQUE_RESPONSES, REVISE, BEST_OF_N, BEST_OF_N_VERIFIED)
