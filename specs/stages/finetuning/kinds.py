"""The kinds that train: ``sft`` on examples, ``dpo`` on preferences."""

from __future__ import annotations

from specs.stages.finetuning.metrics import TRAINING_METRICS
from specs.stages.finetuning.parameters import DpoParameters, SftParameters
from specs.stages.finetuning.rows import PairScore, PreferenceStep, TrainingRow
from specs.stages.kind import StageKind
from specs.stages.metric import of_scope

SFT = StageKind(
    name="sft",
    parameters=SftParameters,
    inputs={"model": "checkpoint", "examples": "examples"},
    outputs={"rows": "rows", "checkpoint": "checkpoint"},
    rows={"rows": TrainingRow},
    metrics=of_scope("sft", *TRAINING_METRICS),
    job="training.jobs.finetuning.sft:sft",
    judge="reviews.stages.finetuning.sft",
    trains="examples",
    resumable=True,
    instruct_unsaid=True,
    examples=("inputs", "examples"),
)

DPO = StageKind(
    name="dpo",
    parameters=DpoParameters,
    inputs={"model": "checkpoint", "preferences": "preferences"},
    outputs={"rows": "rows", "pairs": "rows", "checkpoint": "checkpoint"},
    rows={"rows": PreferenceStep, "pairs": PairScore},
    metrics=of_scope("dpo", *TRAINING_METRICS),
    job="training.jobs.finetuning.dpo:dpo",
    judge="reviews.stages.finetuning.dpo",
    trains="preferences",
    resumable=True,
)

KINDS = (SFT, DPO)
