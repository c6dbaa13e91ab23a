"""Replicas of other trainings than adapters on examples: pairs, full weights, weights of bfloat16 with masters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reviews.stages.finetuning.replay_checks import differs
from specs.stages.registry import STAGE_KINDS
from specs.stages.stage import Kind
from specs.stages.witness import REPLAYED
from tests.fixtures.needed import need
from tests.fixtures.replica_jobs import ADAPTERS, replica_job, rounds_of
from tests.stages.finetuning.test_training import judged
from tests.training.jobs.test_replay import replayed_by
from training.jobs.finetuning.replicas import dispatch

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
    found = judged(tmp_path, job, done)
    wrong = {id: told for id, told in found.items() if not told.startswith(("PASS", "NOT_APPLICABLE"))}
    # A random model that sees a few rows twice: what advises may say so.
    assert set(wrong) <= {"training.starvation", "training.loss", "dpo.learnt", "training.collapse"}, wrong
    rows = [
        STAGE_KINDS[kind].rows["rows"].model_validate_json(line)
        for line in (job.out / "rows.jsonl").read_bytes().splitlines()
    ]
    replayed, facts = replayed_by(job)
    dtype = parameters.get("precision", "float32")
    assert [why for one in replayed if (why := differs(rows, one, REPLAYED[dtype]))] == []
    assert facts["end_apart"] < (1e-5 if dtype == "float32" else 1e-2) and facts["files"] == []
