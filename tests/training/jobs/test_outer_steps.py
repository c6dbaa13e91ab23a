"""The outer step of replicas as the witness makes it: its sign, its momentum, and whose steps are in it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from specs.stages.finetuning.distributed import DistributedTraining, ReplicaRound
from testing.fixtures.needed import need

need("torch")

from training.jobs.finetuning.replicas.outer_weights import (  # noqa: E402
    masters_of,
    moved_back,
    outer_of,
    read_masters,
    save_outer,
)
from training.jobs.finetuning.replicas.replica_replay import (  # noqa: E402
    RoundPart,
    RoundStart,
    _outer_step,  # pyright: ignore[reportPrivateUsage]
)


def _row(replica: int, before: str, *, healed: bool = False) -> ReplicaRound:
    digests = {"start": "0" * 64, "before": before * 64, "after": "f" * 64}
    counts = dict.fromkeys(("sync", "process", "first_step", "last_step", "participants"), 1)
    rest = dict.fromkeys(("tokens", "sequences", "quorum", "drift", "bytes", "seconds"), 0)
    return ReplicaRound.model_validate({"replica": replica, "healed": healed} | digests | counts | rest)


def _given(lr: float, momentum: float) -> DistributedTraining:
    return DistributedTraining.model_validate(
        {"replicas": 2, "sync_every": 1, "outer": {"lr": lr, "momentum": momentum}}
    )


def _after(
    state: Any, begun: float, moves: dict[int, float], rows: list[ReplicaRound], training: DistributedTraining
) -> float:
    import torch

    made = {
        replica: RoundPart({"w": torch.tensor([begun])}, {"w": torch.tensor([begun + move])}, [], [])
        for replica, move in moves.items()
    }
    return float(_outer_step(state and RoundStart(state, {}), made, rows, training)["w"])


@pytest.mark.parametrize(
    ("lr", "momentum", "expected"),
    [(1.0, 0.0, [2.0, 4.0, 6.0]), (0.7, 0.9, [2.66, 6.454, 11.2686])],
    ids=["mean", "nesterov"],
)
def test_the_model_moves_where_the_replicas_moved(lr: float, momentum: float, expected: list[float]) -> None:
    import torch

    training, weight = _given(lr, momentum), 0.0
    # The state that a replica saves after each synchronisation.
    saved = torch.zeros(1, requires_grad=True)
    outer = outer_of([saved], training)
    for want in expected:
        state = copy.deepcopy(outer.state_dict())
        weight = _after(
            state if outer.state else None, weight, {0: 1.0, 1: 3.0}, [_row(0, "a"), _row(1, "b")], training
        )
        saved.grad = torch.tensor([-2.0])
        outer.step()
        assert weight == pytest.approx(want, abs=1e-4)


def test_who_took_over_weights_contributes_those_of_the_donor_again() -> None:
    rows = [_row(0, "a"), _row(1, "b"), _row(2, "b", healed=True)]
    assert _after(None, 0.0, {0: 1.0, 1: 4.0}, rows, _given(1.0, 0.0)) == pytest.approx((1 + 4 + 4) / 3)


def test_masters_keep_what_bfloat16_would_round_away(tmp_path: Path) -> None:
    import torch

    # Steps of a thousandth of the weight: bfloat16 has eight bits for it.
    training, weights = _given(0.001, 0.0), {"w": torch.nn.Parameter(torch.tensor([1.0], dtype=torch.bfloat16))}
    outer, saved = outer_of(list(masters_of(weights, None).values()), training), tmp_path
    masters = masters_of(weights, None)
    begun = weights["w"].detach().clone()
    for _ in range(10):
        made = {0: RoundPart({"w": begun}, {"w": begun + 1}, [], [])}
        save_outer(saved, outer, masters)
        start = RoundStart(outer.state_dict(), read_masters(saved))
        begun = _outer_step(start, made, [_row(0, "a")], training)["w"]
        # What the replica does, as DiLoCo has it.
        masters["w"].data.sub_(training.outer.lr * moved_back(made[0].initial_weights["w"], made[0].final_weights["w"]))
    assert begun.dtype == torch.bfloat16 and float(begun) == float(masters["w"].detach().bfloat16()) > 1.0
    assert float(masters["w"].detach()) == pytest.approx(1.01, abs=1e-3)
    assert float(masters_of(weights, saved)["w"].detach()) == pytest.approx(1.009, abs=1e-3)
