"""The kinds that train: ``sft`` on examples, ``dpo`` on pairs, ``grpo``, ``sdpo`` and ``composer`` on own answers."""

from __future__ import annotations

from specs.stages.finetuning import online_parameters, online_rows, parameters, rows
from specs.stages.finetuning.distributed import ReplicaRound
from specs.stages.finetuning.metrics import DPO_METRICS, SFT_METRICS
from specs.stages.finetuning.online_metrics import online_metrics
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
    rows={"rows": rows.PreferenceStep, "pairs": rows.PairScore, "replicas": ReplicaRound},
    metrics=DPO_METRICS,
    job="training.jobs.finetuning.replicas.dispatch:dpo",
    replayed="training.jobs.finetuning.replicas.dispatch:replay",
    judge="reviews.stages.finetuning.measure",
    trains="preferences",
    resumable=True,
    reads_turns=True,
    added=(_SNAPSHOTS, _REPLICAS),
)

_ROWS = {
    "rows": online_rows.RolloutStep,
    "rollouts": online_rows.Rollout,
    "kept": online_rows.KeptAnswer,
    "replicas": ReplicaRound,
}

GRPO = StageKind(
    name="grpo",
    parameters=online_parameters.GrpoParameters,
    inputs={"model": "checkpoint", "prompts": "items"},
    outputs={"rows": "rows", "rollouts": "rows", "kept": "rows", "checkpoint": "checkpoint"},
    rows=_ROWS,
    metrics=online_metrics("grpo_"),
    job="training.jobs.finetuning.replicas.dispatch:grpo",
    replayed="training.jobs.finetuning.replicas.dispatch:replay_rollouts",
    judge="reviews.stages.finetuning.online",
    trains="prompts",
    resumable=True,
    reads_turns=True,
    added=(_SNAPSHOTS, _REPLICAS),
)

SDPO = StageKind(
    name="sdpo",
    parameters=online_parameters.SdpoParameters,
    inputs={"model": "checkpoint", "prompts": "items"},
    outputs={"rows": "rows", "rollouts": "rows", "kept": "rows", "checkpoint": "checkpoint"},
    rows=_ROWS,
    metrics=online_metrics("sdpo_"),
    job="training.jobs.finetuning.replicas.dispatch:sdpo",
    replayed="training.jobs.finetuning.replicas.dispatch:replay_rollouts",
    judge="reviews.stages.finetuning.online",
    trains="prompts",
    resumable=True,
    reads_turns=True,
    added=(_SNAPSHOTS, _REPLICAS),
)

COMPOSER = StageKind(
    name="composer",
    parameters=online_parameters.ComposerParameters,
    inputs={"model": "checkpoint", "prompts": "items"},
    outputs={"rows": "rows", "rollouts": "rows", "kept": "rows", "checkpoint": "checkpoint"},
    rows=_ROWS,
    metrics=online_metrics("composer_"),
    job="training.jobs.finetuning.replicas.dispatch:composer",
    replayed="training.jobs.finetuning.replicas.dispatch:replay_rollouts",
    judge="reviews.stages.finetuning.online",
    trains="prompts",
    resumable=True,
    reads_turns=True,
    added=(_SNAPSHOTS, _REPLICAS, Added("reads_pairs", inputs={"pairs": "preferences"})),
)

KINDS = (SFT, DPO, GRPO, SDPO, COMPOSER)
