"""The kinds that train: ``sft`` on examples, ``dpo`` on pairs, ``grpo``, ``sdpo`` and ``composer`` on own answers."""

from __future__ import annotations

from functools import partial

from specs.stages.base.kind import ConditionalPorts, StageKind
from specs.stages.finetuning import online_parameters, online_rows, parameters, rows
from specs.stages.finetuning.distributed import ReplicaRound
from specs.stages.finetuning.metrics import DPO_METRICS, SFT_METRICS, online_metrics

_SNAPSHOTS = ConditionalPorts("leaves_snapshots", outputs={"snapshots": "snapshots"})
_REPLICAS = ConditionalPorts("synchronises", outputs={"replicas": "rows"})
_VALIDATION = ConditionalPorts("validation_share", outputs={"validation": "rows"})
_READINGS = ConditionalPorts("early_stopping", outputs={"validation": "rows"})

SFT = StageKind(
    name="sft",
    parameters=parameters.SftParameters,
    inputs={"model": "checkpoint", "examples": "examples"},
    outputs={"rows": "rows", "checkpoint": "checkpoint"},
    rows={"rows": rows.TrainingRow, "validation": rows.ValidationRow, "replicas": ReplicaRound},
    metrics=SFT_METRICS,
    job="training.jobs.finetuning.replicas.dispatch:sft",
    replay_job="training.jobs.finetuning.replicas.dispatch:replay",
    judge="reviews.stages.finetuning.measure",
    trains="examples",
    resumable=True,
    reads_turns=True,
    conditional_ports=(_SNAPSHOTS, _REPLICAS, _VALIDATION),
    examples=("inputs", "examples"),
    review_focus=(
        "the mask: is the loss taken over the answer alone, in every turn that is learned",
        "the loss: does it fall as data and rate let it, without a jump, and not to nothing",
        "learning rate and schedule: as granted, decayed by the end, no step that moved too far",
        "rows seen against rows given: epochs, rows that were cut or dropped, repeats",
        "what the training text teaches besides the task: length, format, answers to held-out prompts",
    ),
)

DPO = StageKind(
    name="dpo",
    parameters=parameters.DpoParameters,
    inputs={"model": "checkpoint", "preferences": "preferences"},
    outputs={"rows": "rows", "pairs": "rows", "checkpoint": "checkpoint"},
    rows={
        "rows": rows.PreferenceStep,
        "pairs": rows.PairScore,
        "validation": rows.PairReading,
        "replicas": ReplicaRound,
    },
    metrics=DPO_METRICS,
    job="training.jobs.finetuning.replicas.dispatch:dpo",
    replay_job="training.jobs.finetuning.replicas.dispatch:replay",
    judge="reviews.stages.finetuning.measure",
    trains="preferences",
    resumable=True,
    reads_turns=True,
    conditional_ports=(_SNAPSHOTS, _REPLICAS, _READINGS),
    review_focus=(
        "margins: do they grow, and for most pairs or for a few",
        "pairs: what sets chosen and rejected apart from quality, above all their length",
        "the reference: the granted weights, with log-probabilities that do not move",
        "rate and steps: as granted, without a collapse of both log-probabilities",
    ),
)

_ROWS = {
    "rows": online_rows.RolloutStep,
    "rollouts": online_rows.Rollout,
    "kept": online_rows.KeptAnswer,
    "replicas": ReplicaRound,
}

_online = partial(
    StageKind,
    inputs={"model": "checkpoint", "prompts": "items"},
    outputs={"rows": "rows", "rollouts": "rows", "kept": "rows", "checkpoint": "checkpoint"},
    rows=_ROWS,
    replay_job="training.jobs.finetuning.replicas.dispatch:replay_rollouts",
    judge="reviews.stages.finetuning.online",
    trains="prompts",
    resumable=True,
    reads_turns=True,
)
"""Kinds that train on the model's own answers."""

GRPO = _online(
    name="grpo",
    parameters=online_parameters.GrpoParameters,
    metrics=online_metrics("grpo_"),
    job="training.jobs.finetuning.replicas.dispatch:grpo",
    conditional_ports=(_SNAPSHOTS, _REPLICAS),
    review_focus=(
        "reward: does it rise because answers get better, or because they satisfy the verifier in another way",
        "answers of one prompt: do they differ, or has sampling collapsed",
        "distance to the reference, and the length of answers over the steps",
        "prompts: which were used, and how many gave no signal because all answers were alike",
    ),
)

SDPO = _online(
    name="sdpo",
    parameters=online_parameters.SdpoParameters,
    metrics=online_metrics("sdpo_"),
    job="training.jobs.finetuning.replicas.dispatch:sdpo",
    conditional_ports=(_SNAPSHOTS, _REPLICAS),
    review_focus=(
        "the teacher: is it the granted model with the feedback, and does its signal fall on tokens that matter",
        "feedback: does it say what is wrong, or hand over the answer",
        "answers of one prompt: do they differ, or has sampling collapsed",
        "distance to the reference, and the length of answers over the steps",
    ),
)

COMPOSER = _online(
    name="composer",
    parameters=online_parameters.ComposerParameters,
    metrics=online_metrics("composer_"),
    job="training.jobs.finetuning.replicas.dispatch:composer",
    conditional_ports=(_SNAPSHOTS, _REPLICAS, ConditionalPorts("reads_pairs", inputs={"pairs": "preferences"})),
    review_focus=(
        "channels: does each requested one fire, and does its loss move",
        "weights of the channels: as granted, none of them deciding alone",
        "reward: does it rise because answers get better, or because they satisfy the verifier in another way",
        "distance to the reference, entropy, and the length of answers over the steps",
    ),
)

KINDS = (SFT, DPO, GRPO, SDPO, COMPOSER)
