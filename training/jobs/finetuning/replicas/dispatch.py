"""The processes of the kinds that train: in one process, or by replicas where the parameters say so."""

from __future__ import annotations

from typing import Any

from specs.stages.finetuning.online_parameters import ComposerParameters, GrpoParameters, SdpoParameters
from specs.stages.finetuning.parameters import DpoParameters, SftParameters
from training.jobs.finetuning import dpo as plain_dpo
from training.jobs.finetuning import replay as text_replay
from training.jobs.finetuning import sft as plain_sft
from training.jobs.finetuning.online import replay as rollout_replay
from training.jobs.finetuning.online.job import train_on_rollouts
from training.jobs.finetuning.replicas import outcome, replica_replay
from training.jobs.job import Job, StageResult


def sft(job: Job[SftParameters]) -> StageResult:
    """Train as the parameters say."""
    return plain_sft.sft(job) if job.parameters.distributed is None else outcome.train(job)


def dpo(job: Job[DpoParameters]) -> StageResult:
    """Train as the parameters say."""
    return plain_dpo.dpo(job) if job.parameters.distributed is None else outcome.train(job)


def grpo(job: Job[GrpoParameters]) -> StageResult:
    """Train as the parameters say."""
    return train_on_rollouts(job) if job.parameters.distributed is None else outcome.train(job)


def sdpo(job: Job[SdpoParameters]) -> StageResult:
    """Train as the parameters say."""
    return train_on_rollouts(job) if job.parameters.distributed is None else outcome.train(job)


def composer(job: Job[ComposerParameters]) -> StageResult:
    """Train as the parameters say."""
    return train_on_rollouts(job) if job.parameters.distributed is None else outcome.train(job)


def replay(job: Job[Any]) -> StageResult:
    """Train some of the steps again, as they were trained."""
    return text_replay.replay(job) if job.parameters.distributed is None else replica_replay.replay(job)


def replay_rollouts(job: Job[Any]) -> StageResult:
    """Train some of the steps again, on the answers that the job committed to."""
    return rollout_replay.replay(job) if job.parameters.distributed is None else replica_replay.replay(job)
