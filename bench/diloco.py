"""What a synchronisation of replicas costs: bytes and seconds, against the trained parameters and ``sync_every``.

    .venv/bin/python -m bench.diloco --out bench/results/diloco.json   # about three minutes on two quiet cores
    .venv/bin/python -m bench.diloco --paper                           # the cost model alone

Measured are 2 and 4 processes on this machine that exchange a tensor of float32 by torchft and gloo over loopback: the
figures show that replicas are correct and what torchft adds, and nothing of a network. Latency and bandwidth are fitted
to two replicas; what they predict for four is printed next to what was measured. The cost model for more replicas is on
paper: a ring sends 2 (n - 1) / n of the bytes through each replica in 2 (n - 1) turns, a replica that dies repeats half
a round, and the peer is averaging gradients at every step. It leaves out slow replicas, the time of a new quorum, and
whether the model learns as much.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from specs.stages.finetuning.distributed import DistributedTraining

ROUNDS = 6
SIZES = (10_000, 1_000_000, 8_000_000)
EVERY = (1, 20)


class Link(NamedTuple):
    """What lies between two replicas."""

    latency_s: float
    bytes_per_s: float

    def seconds(self, replicas: int, size: int) -> float:
        """Return how long an all-reduce of so many bytes takes in a ring."""
        return 2 * (replicas - 1) * (self.latency_s + size / replicas / self.bytes_per_s)


def main() -> int:
    """Print the measured figures and the cost model; 1 if replicas were not one model."""
    parser = argparse.ArgumentParser(description="The cost of synchronising replicas.")
    parser.add_argument("--paper", action="store_true", help="the cost model alone")
    parser.add_argument("--out", type=Path, help="a JSON file for the measured figures")
    namespace = parser.parse_args()
    equal = True
    if not namespace.paper:
        rows = measure_rounds()
        print("\n".join(table(rows)), fit_costs(rows), sep="\n\n")
        equal = all(row["equal"] for row in rows)
        if namespace.out:
            namespace.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    paper()
    return 0 if equal else 1


def measure_rounds() -> list[dict[str, Any]]:
    """Return a row for each measured case: the median of its synchronisations, and whether all weights were equal."""
    results: list[dict[str, Any]] = []
    for replicas in (2, 4):
        for size in SIZES:
            for every in EVERY if size == SIZES[0] else EVERY[-1:]:
                seconds, equal = _run(replicas, size, every)
                row = {"replicas": replicas, "parameters": size, "sync_every": every, "seconds": seconds}
                results.append(row | {"equal": equal})
                print(results[-1], file=sys.stderr, flush=True)
    return results


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of the table that pages quote."""
    lines = [
        "| replicas | parameters | `sync_every` | bytes a replica and step | plain data-parallel | seconds | equal |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for row in rows:
        size, every = row["parameters"], row["sync_every"]
        message = f"| {row['replicas']} | {size:,} | {every} | {4 * size / every:,.0f} | {4 * size:,} | "
        lines.append(f"{message}{row['seconds']:.2g} | {'yes' if row['equal'] else 'NO'} |")
    return lines


def fit_costs(rows: Sequence[dict[str, Any]]) -> str:
    """Return what latency and bandwidth of two replicas predict for four, next to what was measured."""
    results = {(row["replicas"], row["parameters"]): row["seconds"] for row in rows}
    small, large = results[2, SIZES[0]], results[2, SIZES[-1]]
    rate = 4 * (SIZES[-1] - SIZES[0]) / max(large - small, 1e-9)
    link = Link(small / 2, rate)
    parts = [f"Fitted to 2 replicas: {link.latency_s * 1000:.2g} ms a turn, {link.bytes_per_s / 1e6:.2g} MB a second."]
    for size in SIZES:
        took, due_at = results[4, size], link.seconds(4, 4 * size)
        parts.append(f"4 replicas, {size:,} parameters: predicted {due_at:.2g} s, measured {took:.2g} s.")
    return "\n".join(parts)


def _run(replicas: int, size: int, every: int) -> tuple[float, bool]:
    """Return the median seconds of a synchronisation, the first left out, and whether all weights were equal."""
    from testing.fixtures.replica_worker import start
    from training.jobs.finetuning.replicas.coordinator import address_of, apart, lighthouse_of
    from training.jobs.finetuning.replicas.replica_files import folder_of, rounds_in

    arguments = DistributedTraining(replicas=replicas, sync_every=every, min_replicas=replicas)
    with tempfile.TemporaryDirectory(prefix="peergate-diloco-") as name:
        folder, lighthouse = Path(name), lighthouse_of(arguments)
        workers = [
            start(
                folder_of(folder, index), index, address_of(lighthouse), arguments, steps=ROUNDS * every, weights=size
            )
            for index in range(replicas)
        ]
        parts = [worker.communicate(timeout=300)[1] for worker in workers]
        lighthouse.shutdown()
        if any(worker.returncode for worker in workers):
            raise SystemExit("\n".join(parts))
        rounds = {index: rounds_in(folder_of(folder, index)) for index in range(replicas)}
        complete = all(len(replica_rounds) == ROUNDS for replica_rounds in rounds.values())
        seconds = [value.row.seconds for replica_rounds in rounds.values() for value in replica_rounds[1:]]
        return median(seconds), complete and not apart(folder, rounds)


PARAMETERS = 40_000_000
STEP_S, LIFE_S = 1.0, 100 * 3600.0
LINKS = {"1 Gbit/s, 30 ms": Link(0.03, 1.25e8), "10 Gbit/s, 1 ms": Link(0.001, 1.25e9)}


def paper() -> None:
    """Print the cost model: the share of time spent on synchronising, and on rounds that a failure takes."""
    hours = LIFE_S / 3600
    print(f"\nOn paper: {PARAMETERS:,} parameters, {STEP_S:g} s a step, a replica dies once in {hours:.0f} hours.")
    print("\n| replicas | link | sync_every | synchronising | plain data-parallel | deaths a round | work lost |")
    print("|---|---|---|---|---|---|---|")
    for replicas in (8, 32, 128, 512):
        for name, link in LINKS.items():
            once = link.seconds(replicas, 4 * PARAMETERS)
            for every in (50, 500):
                share = once / (once + every * STEP_S)
                plain = once / (once + STEP_S)
                # A replica that dies loses half a round on average, and no other one does.
                deaths, lost = replicas * every * STEP_S / LIFE_S, every * STEP_S / 2 / LIFE_S
                print(f"| {replicas} | {name} | {every} | {share:.1%} | {plain:.1%} | {deaths:.2g} | {lost:.2%} |")
    print("\nThe quorum breaks when half of the replicas are gone at a time; otherwise the others go on.")


if __name__ == "__main__":
    raise SystemExit(main())
