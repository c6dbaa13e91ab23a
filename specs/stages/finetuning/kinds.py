"""The kinds that train: ``sft`` on examples, ``dpo`` on preferences."""

from __future__ import annotations

from specs.stages.finetuning import parameters, rows
from specs.stages.finetuning.distributed import ReplicaRound
from specs.stages.finetuning.metrics import DPO_METRICS, SFT_METRICS
from specs.stages.kind import Added, StageKind

_SNAPSHOTS = Added("leaves_snapshots", outputs={"snapshots": "snapshots"})
_REPLICAS = Added("synchronises", outputs={"replicas": "rows"})

SFT = StageKind(
    name="sft",
    parameters=parameters.SftParameters,
    inputs={"model": "checkpoint", "examples": "examples"},
    outputs={"rows": "rows", "checkpoint": "checkpoint"},
    rows={"rows": rows.TrainingRow, "replicas": ReplicaRound},
    metrics=SFT_METRICS,
    job="training.jobs.finetuning.replicas.dispatch:sft",
    replayed="training.jobs.finetuning.replicas.dispatch:replay",
    judge="reviews.stages.finetuning.measure",
    trains="examples",
    resumable=True,
    reads_turns=True,
    added=(_SNAPSHOTS, _REPLICAS),
    instruct_unsaid=True,
    examples=("inputs", "examples"),
)

DPO = StageKind(
    name="dpo",
    parameters=parameters.DpoParameters,
    inputs={"model": "checkpoint", "preferences": "preferences"},
    outputs={"rows": "rows", "pairs": "rows", "checkpoint": "checkpoint"},
    rows={"rows": rows.PreferenceStep, "pairs": rows.PairScore},
    metrics=DPO_METRICS,
    job="training.jobs.finetuning.dpo:dpo",
    replayed="training.jobs.finetuning.replay:replay",
    judge="reviews.stages.finetuning.measure",
    trains="preferences",
    resumable=True,
    reads_turns=True,
    added=(_SNAPSHOTS,),
)

KINDS = (SFT, DPO)
