"""How replicas share data and how their steps become the rows of one training."""

from __future__ import annotations

import pytest

from specs.stages.finetuning.distributed import DistributedTraining, ReplicaRound
from training.rules.finetuning.replica_rounds import Merging, Share, donor_of, merged_sketch, merged_step, shard_of
from training.rules.finetuning.schedules import steps_of


@pytest.mark.parametrize(("rows", "replicas"), [(12, 2), (13, 2), (14, 4), (4, 4)])
def test_shards_are_equally_long_and_share_no_row(rows: int, replicas: int) -> None:
    shards = [shard_of(range(rows), index, replicas) for index in range(replicas)]
    assert {len(shard) for shard in shards} == {rows // replicas}
    assert sorted(row for shard in shards for row in shard) == list(range(rows - rows % replicas))


def test_steps_are_those_of_each_replica() -> None:
    arguments = {"batch_size": 2, "gradient_accumulation": 1, "epochs": 2}
    assert steps_of(21, arguments) == 22
    assert steps_of(21, arguments | {"distributed": {"replicas": 2}}) == 10


def test_a_merged_step_is_that_of_all_tokens() -> None:
    row = {"step": 3, "epoch": 0.5, "learning_rate": 1e-3, "loss": 1.0, "grad_norm": 1.0, "tokens": 10}
    other = row | {"loss": 4.0, "grad_norm": 3.0, "tokens": 30, "batches": ["b"], "sketch": [2.0, 4.0]}
    merged = merged_step([row | {"batches": ["a"], "sketch": [1.0, 2.0]}, other])
    assert (merged["loss"], merged["grad_norm"], merged["tokens"]) == (3.25, 2.0, 40)
    assert (merged["batches"], merged["sketch"], merged["step"]) == (["a", "b"], [1.5, 3.0], 3)


def test_a_merged_step_of_pairs_is_the_mean_over_sequences() -> None:
    row = {"step": 1, "epoch": 0.5, "learning_rate": 1e-3, "loss": 1.0, "grad_norm": 1.0, "tokens": 10, "sequences": 6}
    row |= {"batches": ["a"], "sketch": [1.0], "margin": 2.0, "reward": None}
    other = row | {"loss": 4.0, "tokens": 90, "sequences": 2, "margin": 6.0}
    merged = merged_step([row, other], Merging("sequences", ("margin", "reward", "unknown")))
    assert (merged["loss"], merged["margin"], merged["tokens"]) == (1.75, 3.0, 100)
    assert "reward" not in merged and "unknown" not in merged


def test_a_share_may_be_cut() -> None:
    assert Share(1, 2).of(range(7)) == [1, 3, 5] and Share(1, 2, most=1).of(range(7)) == [1]


def test_equal_sketches_stay_as_they_are() -> None:
    assert merged_sketch([[0.1, 1 / 3], [0.1, 1 / 3]]) == [0.1, 1 / 3]


def _row(replica: int, before: str, healed: bool = False, sync: int = 2) -> ReplicaRound:
    digests = {"start": "0" * 64, "before": before * 64, "after": "f" * 64}
    counts = dict.fromkeys(("process", "first_step", "last_step", "participants"), 1)
    rest = dict.fromkeys(("tokens", "sequences", "quorum", "drift", "bytes", "seconds"), 0)
    return ReplicaRound.model_validate({"sync": sync, "replica": replica, "healed": healed} | digests | counts | rest)


def test_a_replica_that_took_over_weights_contributes_those_of_its_donor() -> None:
    rows = [_row(0, "a"), _row(1, "b"), _row(2, "b", healed=True)]
    assert [donor_of(replica_round, rows) for replica_round in rows] == [0, 1, 1]
    assert donor_of(rows[2], [rows[2], _row(3, "b", healed=True), rows[1]]) == 1
    with pytest.raises(ValueError, match="replica 2 took over weights at synchronisation 2"):
        donor_of(rows[2], rows[:1])


@pytest.mark.parametrize(("replicas", "quorum"), [(2, 2), (3, 2), (4, 3), (5, 3)])
def test_more_than_half_of_the_replicas_must_take_part(replicas: int, quorum: int) -> None:
    assert DistributedTraining(replicas=replicas, sync_every=4).quorum == quorum
    assert DistributedTraining(replicas=replicas, sync_every=4, min_replicas=replicas).quorum == replicas
    if quorum > 2:
        with pytest.raises(ValueError, match="two halves could each train their own model"):
            DistributedTraining(replicas=replicas, sync_every=4, min_replicas=quorum - 1)
    with pytest.raises(ValueError, match=f"it must be {quorum} to {replicas}"):
        DistributedTraining(replicas=replicas, sync_every=4, min_replicas=replicas + 1)


def test_the_last_round_may_have_fewer_steps() -> None:
    training = DistributedTraining(replicas=2, sync_every=4)
    assert training.rounds_of(10) == 3 and [training.last_step(sync, 10) for sync in (1, 2, 3)] == [4, 8, 10]
    assert training.rounds_of(8) == 2 and training.last_step(2, 8) == 8
