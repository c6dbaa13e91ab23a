"""How replicas divide the data of a training, and how their steps become the rows of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from specs.stages.finetuning.distributed import ReplicaRound

One = TypeVar("One")


def shard_of(rows: Sequence[One], replica: int, replicas: int) -> list[One]:
    """Return a replica's share: every n-th row. All have the same number; the few rows left over are in none."""
    return list(rows[: len(rows) - len(rows) % replicas][replica::replicas])


class Share(NamedTuple):
    """Which share of the data a replica has; ``most`` of its rows where only the model of a trainer is wanted."""

    replica: int
    replicas: int
    most: int | None = None

    def of(self, rows: Sequence[One]) -> list[One]:
        """Return the share of some rows."""
        return shard_of(rows, self.replica, self.replicas)[: self.most]


class Merging(NamedTuple):
    """How the same step of several replicas becomes one row."""

    by: str = "tokens"
    """What the loss of a step is the mean over, and so how replicas are weighed."""
    means: tuple[str, ...] = ()
    """Further values of a logged step that are merged as the loss is."""


BY_TOKENS = Merging()


def merged_step(entries: Sequence[Mapping[str, Any]], how: Merging = BY_TOKENS) -> dict[str, Any]:
    """Return one row for the same step of several replicas, in their order.

    Tokens are summed, the loss is the mean that ``how`` says, and gradient norm and sketch are means over replicas.
    """
    first, whole = entries[0], sum(entry[how.by] for entry in entries)
    weights = [entry[how.by] / whole if whole else 1 / len(entries) for entry in entries]
    further: dict[str, Any] = {
        name: _mean(weights, [entry[name] for entry in entries])
        for name in how.means
        if all(entry.get(name) is not None for entry in entries)
    }
    if "channels" in first:
        further["channels"] = {
            name: _merged_channel(weights, [entry["channels"][name] for entry in entries]) for name in first["channels"]
        }
    return further | {
        "step": first["step"],
        "epoch": first["epoch"],
        "learning_rate": first["learning_rate"],
        "loss": _mean(weights, [entry["loss"] for entry in entries]),
        "grad_norm": sum(entry["grad_norm"] for entry in entries) / len(entries),
        "tokens": sum(entry["tokens"] for entry in entries),
        "batches": [digest for entry in entries for digest in entry["batches"]],
        "sketch": merged_sketch([entry["sketch"] for entry in entries]),
    }


def _merged_channel(weights: Sequence[float], entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what a channel did in all replicas; its gradient norm is their mean."""
    return {
        "loss": _mean(weights, [entry["loss"] for entry in entries]),
        "rows": sum(entry["rows"] for entry in entries),
        "tokens": sum(entry["tokens"] for entry in entries),
        "grad_norm": sum(entry["grad_norm"] for entry in entries) / len(entries),
    }


def _mean(weights: Sequence[float], values: Sequence[float]) -> float:
    return sum(weight * value for weight, value in zip(weights, values, strict=True))


def merged_sketch(sketches: Sequence[Sequence[float]]) -> list[float]:
    """Return the mean of sketches; equal ones stay as they are."""
    first = list(sketches[0])
    if all(list(sketch) == first for sketch in sketches):
        return first
    return [float(f"{sum(values) / len(values):.9g}") for values in zip(*sketches, strict=True)]


def donor_of(replica_round: ReplicaRound, others: Sequence[ReplicaRound]) -> int:
    """Return whose steps a replica contributed at a synchronisation: its own, or those it took over.

    Raises ValueError if it took over weights that no replica of the same synchronisation had.
    """
    if not replica_round.healed:
        return replica_round.replica
    for other in others:
        if other.sync == replica_round.sync and not other.healed and other.before == replica_round.before:
            return other.replica
    raise ValueError(
        f"replica {replica_round.replica} took over weights at synchronisation {replica_round.sync} "
        f"that no other one had"
    )
