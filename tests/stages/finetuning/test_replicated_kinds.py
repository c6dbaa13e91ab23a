"""Replicas of other trainings than adapters on examples: pairs, full weights, weights of bfloat16 with masters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reviews.stages.finetuning.replay_checks import differs
from specs.stages.base.stage import Kind
from specs.stages.base.witness import REPLAYED
from specs.stages.finetuning.online_rows import Rollout, RolloutStep
from specs.stages.finetuning.rows import ReplayedStep
from specs.stages.registry import STAGE_KINDS
from testing.fixtures.needed import need
from testing.fixtures.replica_jobs import ADAPTERS, replica_job, rounds_of
from testing.fixtures.rollout_jobs import CHANNELS, LORA, witness_of
from tests.stages.finetuning.test_training import judged
from tests.training.jobs.test_replay import replayed_by
from training.jobs.finetuning.replicas import dispatch
from training.jobs.job import Job

need("torch", "trl", "peft", "torchft")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    # transformers reads the old name when it saves a step.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("dpo", {"validation_share": 0.3, **ADAPTERS}),
        ("dpo", {"validation_share": 0.3, "loss": "kto"}),
        ("sft", {"precision": "bfloat16"}),
    ],
    ids=["dpo with adapters", "kto of full weights", "sft in bfloat16"],
)
def test_replicas_train_it_and_a_witness_again(tmp_path: Path, kind: Kind, parameters: dict[str, Any]) -> None:
    job = replica_job(tmp_path, kind=kind, **parameters)
    done = getattr(dispatch, kind)(job)
    rounds = rounds_of(job)
    assert all(len({row.after for row in rounds if row.sync == sync}) == 1 for sync in {row.sync for row in rounds})
    assert {row.bytes for row in rounds} == {4 * done.effective["trained_parameters"]}
    results = judged(tmp_path, job, done)
    wrong = {id: text for id, text in results.items() if not text.startswith(("PASS", "NOT_APPLICABLE"))}
    # A random model that sees a few rows twice: what advises may say so.
    assert set(wrong) <= {"training.starvation", "training.loss", "dpo.learnt", "training.collapse"}, wrong
    rows = _rows(job, "rows", STAGE_KINDS[kind].rows["rows"])
    replayed, facts = replayed_by(job)
    dtype = parameters.get("precision", "float32")
    assert [why for step in replayed if (why := differs(rows, step, REPLAYED[dtype]))] == []
    assert facts["end_apart"] < (1e-5 if dtype == "float32" else 1e-2) and facts["files"] == []


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [("grpo", {"epochs": 3, **LORA}), ("composer", {"epochs": 2, "updates": 2, "channels": CHANNELS, **LORA})],
    ids=["grpo", "composer with all channels"],
)
def test_replicas_learn_from_answers_of_their_own(tmp_path: Path, kind: Kind, parameters: dict[str, Any]) -> None:
    job = replica_job(tmp_path, kind=kind, every=2, **parameters)
    done = getattr(dispatch, kind)(job)
    rounds = rounds_of(job)
    assert all(len({row.after for row in rounds if row.sync == sync}) == 1 for sync in {row.sync for row in rounds})
    rows = _rows(job, "rows", RolloutStep)
    rollouts = _rows(job, "rollouts", Rollout)
    # Both replicas answer two prompts in a step, each those of its own share.
    first = {rollout.item for rollout in rollouts if rollout.step == 1}
    assert len(first) == 4 and len(rollouts) == 16 * len({rollout.step for rollout in rollouts})
    assert {rollout.step % job.parameters.updates for rollout in rollouts} == {1 % job.parameters.updates}
    assert done.facts["sequences"] == done.facts["sequences_due"] == 16 * len(rows)
    witness = witness_of(job)
    facts = dispatch.replay_rollouts(witness).facts
    written = [json.loads(line) for line in (witness.out / "witness.jsonl").read_bytes().splitlines()]
    replayed = [ReplayedStep.model_validate(item) for item in written if "sketch" in item]
    assert [why for step in replayed if (why := differs(rows, step, REPLAYED["float32"]))] == []
    assert facts["end_apart"] < 1e-5 and facts["files"] == []
    # Every answer of a replayed step was read, by its place among those of both replicas.
    read = {item["row"]: item for item in written if item.get("part") == ""}
    steps = {step.step for step in replayed}
    assert set(read) == {place for place, rollout in enumerate(rollouts) if rollout.step in steps}


def _rows(job: Job, name: str, form: Any) -> list[Any]:
    return [form.model_validate_json(line) for line in (job.out / f"{name}.jsonl").read_bytes().splitlines()]
