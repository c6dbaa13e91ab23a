"""How likely does a witness find a job out, and what does that cost? `python -m bench.witness_curve` (no model).

Answers and scores: of so many rows some are wrong, and as many as the table's head says are drawn; found is a job of
which a wrong row is read. Of sampled answers a single one often shows nothing, whatever was done: detection by all of
them together against rows read is what ``python -m bench.witness_samples`` measures. Training: parts of a run are drawn
as the gate draws them (``reviews/gate/challenge.py``), 2,000 times; found is a run of which a step is trained again
that was trained otherwise. That a wrong row or step shows once it is read is measured by ``python -m bench.witness``
(which prints the same curve for the answers it reads), ``bench.witness_scores`` and ``bench.witness_training``.

The cost is a share of what the job itself took: of the time to write the answers, of the steps trained.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable, Sequence
from math import comb

from reviews.gate.challenge import sample_size, segments
from specs.stages.finetuning.parameters import SftParameters
from specs.stages.witness import FIRST_STEPS, REPLAYED_SHARE

RUNS = 2_000
SHARES = (0.02, 0.05, REPLAYED_SHARE, 0.2, 0.4)


def chance(rows: int, wrong: int, read: int) -> float:
    """Return the chance that one of the wrong rows is among those read, drawn without replacement."""
    return 1 - comb(rows - wrong, read) / comb(rows, read)


def curve(rows: int, wrong: int, cost: float, sizes: Iterable[int] = ()) -> str:
    """Say how likely a wrong row is found, by rows read; ``cost``: of all rows, as a share of the job."""
    parts: list[str] = []
    for read in sorted({size for size in (sizes or (1, 2, 4, 8, 16, 32)) if size < rows} | {sample_size(rows), rows}):
        parts.append(f"{read} rows {chance(rows, wrong, read):.0%} for {cost * read / rows:.1%}")
    return ", ".join(parts)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="What a witness finds, by what it costs.")
    parser.add_argument("--rows", type=int, nargs="+", default=[120, 1000], help="rows of a stage")
    parser.add_argument("--ratio", type=float, default=1.0, help="reading all rows, as a share of writing them")
    parser.add_argument("--steps", type=int, nargs="+", default=[40, 300], help="steps of a training")
    namespace = parser.parse_args()
    for rows in namespace.rows:
        print(f"\n{rows} rows; the gate draws {sample_size(rows)} on a CPU, 400 or all on a GPU")
        for share in (0.01, 0.05, 0.2):
            wrong = max(1, round(share * rows))
            print(f"  {wrong} wrong: {curve(rows, wrong, namespace.ratio, (4, 8, 16, 32, 64, 128, 400))}")
    for steps in namespace.steps:
        for what, snapshots in (("snapshots", _snapshots(steps)), ("no snapshots", ())):
            print(f"\n{steps} steps, {what}; the gate replays about {REPLAYED_SHARE:.0%}, {FIRST_STEPS} steps at least")
            for share in SHARES:
                print(f"  {_steps(steps, snapshots, share)}")


def _snapshots(steps: int) -> tuple[int, ...]:
    adapters = {"method": "lora", "lora_rank": 8, "lora_alpha": 16, "lora_dropout": 0.0, "target_modules": ["q_proj"]}
    return SftParameters.model_validate({"seed": 1, "learning_rate": 1e-4} | adapters).snapshots_of(steps)


def _steps(steps: int, snapshots: Sequence[int], share: float) -> str:
    """Say how likely a training that was done otherwise in some of its steps is found, and for how many replayed."""
    generator = random.Random(f"{steps} {share}")
    counts, cost = dict.fromkeys(_otherwise(generator, steps), 0), 0
    for run in range(RUNS):
        again = {
            step
            for segment in segments(f"{run}", steps, snapshots, share)
            for step in range(segment.after, segment.until)
        }
        cost += len(again)
        for what, wrong in _otherwise(generator, steps).items():
            counts[what] += not again.isdisjoint(wrong)
    message = ", ".join(f"{what} {count / RUNS:.0%}" for what, count in counts.items())
    return f"{cost / RUNS / steps:.1%} of the steps: {message}"


def _otherwise(generator: random.Random, steps: int) -> dict[str, range]:
    """Return which steps were trained otherwise: a stretch of them that begins anywhere, or the end, or all."""
    parts = {"1 in 32 otherwise": steps // 32 or 1, "1 in 10": steps // 10 or 1, "1 in 3": steps // 3 or 1}
    ranges: dict[str, range] = {}
    for what, size in parts.items():
        begin = generator.randrange(steps - size + 1)
        ranges[what] = range(begin, begin + size)
    return ranges | {"all but the opening": range(min(max(FIRST_STEPS, steps // 10), steps - 1), steps)}


if __name__ == "__main__":
    main()
