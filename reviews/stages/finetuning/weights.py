"""What weight files show of a training: how many parameters there are, and how far steps at its rates moved them.

A step of Adam moves a weight by about the learning rate (Kingma & Ba 2015, section 2.1, arXiv:1412.6980), and never by
more than :func:`adam_bound` of them. Steps that agree add up to the sum of the rates; mere noise, the worst case of a
live optimiser, to about the root of the sum of their squares. Figures of live and dead runs:
``docs/decisions/0078-a-diagnosis-is-made-of-checks.md``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from reviews.checks.definition import manifest_of
from reviews.evidence.evidence import Evidence
from reviews.stages.finetuning.measure import saved_step, steps_of
from specs.stages.finetuning.distributed import DistributedTraining
from specs.system.errors import EvidenceMissing
from specs.system.regular_files import open_regular
from training.rules.weight_files import Shift, WrongWeights, adapter_shifts, compare

LEAST_SHARE = 0.01
"""The least movement, as a share of what noise alone makes. Live runs of tiny models reached 0.30 to 16, a tenth of the
logged rate 0.094 to 0.13."""
_MOST_HEADER_BYTES = 100_000_000
"""The weight files' own limit."""
_ROUNDED = 100
"""Where rounding takes away steps this many times as large as the highest rate, a tensor that stays says nothing."""


_FIRST, _SECOND = 0.9, 0.999
"""The decay rates of Adam's two means: torch's, which no parameter of a stage changes."""


def adam_bound(step: int) -> float:
    """Return the most learning rates by which a step of Adam moves a weight, whatever the gradients were.

    With the means m and v of gradients g and of their squares, Cauchy and Schwarz give
    |m| <= (1 - b1) / sqrt(1 - b2) * sqrt(sum over k < t of (b1^2 / b2)^k) * sqrt(v); both are then divided by
    1 - b^t. It is 1 for the first step, as Kingma & Ba say of sparse gradients, 1.04 for the tenth, and at most 7.27.
    """
    ratio = _FIRST**2 / _SECOND
    terms = (1 - ratio**step) / (1 - ratio)
    correction = math.sqrt(1 - _SECOND**step) / (1 - _FIRST**step)
    return (1 - _FIRST) / math.sqrt(1 - _SECOND) * math.sqrt(terms) * correction


class StepBound(NamedTuple):
    """The most that the weights may change from one logged row to the next: ``fixed`` plus a share of a weight."""

    fixed: float
    share: float

    def plus(self, other: StepBound) -> StepBound:
        """Return both together."""
        return StepBound(self.fixed + other.fixed, self.share + other.share)

    def times(self, factor: float) -> StepBound:
        """Return it so many times."""
        return StepBound(factor * self.fixed, factor * self.share)

    def of(self, size: float) -> float:
        """Return the most that a weight moves which is at most so large at either end."""
        return self.fixed + self.share * (size + self.fixed)


class MovementBound(NamedTuple):
    """How far the logged steps can have carried the weights."""

    steps: tuple[StepBound, ...]
    """From the row before to each row; the first from the start."""
    whole: StepBound
    """From the start to the step whose weights are saved."""


_FLOAT32, _BFLOAT16 = 2.0**-24, 2.0**-8
_DIGITS = 1e-8
"""The precision of a number in a sketch, which has nine digits, twice."""


def is_coarse(evidence: Evidence) -> bool:
    """Return whether weights and the optimizer's means may be of 16 bits; adapters over them may be, too."""
    return evidence.parameters.get("precision") != "mixed" and manifest_of(evidence).dtype != "float32"


def movement_bound(evidence: Evidence) -> MovementBound:
    """Return how far the logged steps can have carried single weights: rates, weight decay, outer steps, rounding.

    A number of 16 bits is the nearest one, so that rounding at most doubles a step; and a mean of squares of 16 bits
    stops growing at a quarter of its value, which doubles it again. Errors as :func:`steps_of`.
    """
    rows = steps_of(evidence)
    rates, decay = [row.learning_rate for row in rows], float(evidence.parameters.get("weight_decay") or 0.0)
    # Some trainers log the rate of the step, others the rate of the next.
    near = [max(rates[max(0, place - 1) : place + 2]) for place in range(len(rates))]
    factor, rounding = (4.0, 0.0) if is_coarse(evidence) else (1.0, _FLOAT32)
    steps = [
        StepBound(factor * rate * adam_bound(row.step), factor * rate * decay + rounding)
        for row, rate in zip(rows, near, strict=True)
    ]
    arguments = evidence.parameters.get("distributed")
    if arguments is None:
        return MovementBound(tuple(steps), _total(steps[: saved_step(evidence)]))
    return _bound_of_replicas(steps, DistributedTraining.model_validate(arguments), is_coarse(evidence))


def _total(steps: Sequence[StepBound]) -> StepBound:
    return StepBound(math.fsum(step.fixed for step in steps), math.fsum(step.share for step in steps))


def _bound_of_replicas(steps: list[StepBound], how: DistributedTraining, coarse: bool) -> MovementBound:
    """Return the bound of replicas: after each round an outer step of SGD, whose gradient is what the round changed."""
    velocity, outer_steps = StepBound(0.0, 0.0), list[StepBound]()
    every = how.sync_every
    for begin in range(0, len(steps), every):
        change = _total(steps[begin : begin + every])
        velocity = velocity.times(how.outer.momentum).plus(change)
        outer = change.plus(velocity.times(how.outer.momentum)).times(how.outer.lr)
        # Weights of 16 bits are those of 32 bits that are synchronised, rounded.
        outer_steps.append(outer.plus(StepBound(0.0, 2 * _BFLOAT16 if coarse else _FLOAT32)))
        last = min(begin + every, len(steps)) - 1
        steps[last] = change.plus(outer_steps[-1])
    return MovementBound(tuple(steps), _total(outer_steps))


def _share_of_bound(pair: tuple[float, float]) -> float:
    """Return what was moved as a share of the most that was possible; infinite where nothing was, or for no number."""
    moved, most = pair
    share = moved / most if most else math.inf if moved else 0.0
    return share if not math.isnan(share) else math.inf


class FarStep(NamedTuple):
    """A row after which a weight is farther than its step can carry it."""

    step: int
    moved: float
    most: float


def far_steps(evidence: Evidence) -> tuple[list[FarStep], float]:
    """Return the rows whose weights moved too far since the row before, and the largest share of a bound.

    Raises:
        EvidenceMissing: a row states no weights, or other ones than the row before, or as :func:`steps_of`.
    """
    rows, far, largest = steps_of(evidence), list[FarStep](), 0.0
    if wrong := next((row.step for row in rows if len(row.sketch) != len(rows[0].sketch) or not row.sketch), None):
        raise EvidenceMissing(f"the row of step {wrong} does not state the weights after it", where="training rows")
    for before, row, bound in zip(rows, rows[1:], movement_bound(evidence).steps[1:], strict=False):
        # The norm of all, which is first, moves in another measure.
        moves = [
            (abs(now - was), max(abs(was), abs(now)))
            for was, now in zip(before.sketch[1:], row.sketch[1:], strict=True)
        ]
        pairs = [(moved, bound.of(size) + _DIGITS * size) for moved, size in moves]
        moved, most = max(pairs, key=_share_of_bound, default=(0.0, 0.0))
        largest = max(largest, _share_of_bound((moved, most)))
        if not _share_of_bound((moved, most)) <= 1:
            far.append(FarStep(row.step, moved, most))
    return far, largest


class WeightMovement(NamedTuple):
    """How far weights moved."""

    changed: int
    """Tensors of the checkpoint that are not those of the model it was trained from."""
    moved: float = 0.0
    """Root mean square of the differences, of the tensor where it is largest."""
    expected: float = 0.0
    """The length of a walk of independent steps, each as long as its logged learning rate."""
    share: float | None = None
    """``moved / due``; None where all rates are 0, or so small that rounding to the weights' type takes steps away."""
    farthest: float = 0.0
    """How far a single weight is from where it began, of the tensor where that is most of what its steps allow."""
    most: float = math.inf
    """The most that the logged steps can have carried it."""


def weights_are_here(evidence: Evidence) -> bool:
    """Return whether the folders of the model and of the checkpoint trained from it are on this machine."""
    folders = evidence.inputs.get("model"), evidence.outputs.get("checkpoint")
    return all(folder is not None and folder.is_dir() for folder in folders)


def course_of(evidence: Evidence) -> WeightMovement | None:
    """Return how far a checkpoint is from the model it was trained from; of adapters, how far these are from zero.

    None unless both are here, and where they are not of one shape, which other checks report.

    Raises:
        EvidenceMissing: the steps, or adapters that were granted, are absent or unreadable.
    """
    base, folder = evidence.inputs.get("model"), evidence.outputs.get("checkpoint")
    if base is None or folder is None or not weights_are_here(evidence):
        return None
    try:
        change = compare(base, folder)
    except (WrongWeights, OSError):
        return None
    if not change.changed:
        return WeightMovement(0)
    shifts = change.shifts
    if evidence.parameters.get("method", "full") != "full":
        try:
            shifts = adapter_shifts(folder / "adapter")
        except (WrongWeights, OSError) as error:
            raise EvidenceMissing(f"the adapters cannot be read: {error}", where="checkpoint") from error
    rates = [row.learning_rate for row in steps_of(evidence)[: saved_step(evidence)]]
    farthest, most = _farthest(evidence, shifts)
    due_at, fine = math.hypot(*rates), _ROUNDED * max(rates)
    parts = [shift.moved for shift in shifts if shift.finest <= fine]
    if not due_at or not parts:
        return WeightMovement(change.changed, farthest=farthest, most=most)
    return WeightMovement(change.changed, max(parts), due_at, max(parts) / due_at, farthest, most)


def _farthest(evidence: Evidence, shifts: tuple[Shift, ...]) -> tuple[float, float]:
    """Return how far a weight is from its start, and how far its steps can carry it, where that is closest."""
    bound, coarse = movement_bound(evidence).whole, is_coarse(evidence)
    pairs = [
        # What was trained in 32 bits and left in 16 was rounded at the end.
        (
            shift.farthest,
            bound.of(shift.highest + shift.farthest) + (0.0 if coarse else 2 * shift.rounding * shift.highest),
        )
        for shift in shifts
    ]
    return max(pairs, key=_share_of_bound, default=(0.0, 0.0))


def parameters_of(folder: Path | None) -> int:
    """Count the parameters of a checkpoint.

    Raises:
        EvidenceMissing: weight files are missing, or one has an unreadable header.
    """
    return sum(math.prod(shape) for _, shape in _tensors(folder))


def adapter_parameters(folder: Path | None, modules: Sequence[str], rank: int) -> int:
    """Count what low-rank adapters have: ``rank`` times (inputs + outputs) a layer; errors as :func:`parameters_of`."""
    ends = tuple(f".{module}.weight" for module in modules)
    every = [shape for name, shape in _tensors(folder) if name.endswith(ends) and len(shape) == 2]
    return sum(rank * sum(shape) for shape in every)


def _tensors(folder: Path | None) -> Iterator[tuple[str, list[int]]]:
    files = sorted(folder.glob("*.safetensors")) if folder is not None else []
    if not files:
        raise EvidenceMissing("no checkpoint with weight files was left")
    for file in files:
        try:
            with open_regular(file) as handle:
                size = int.from_bytes(handle.read(8), "little")
                header: Any = json.loads(handle.read(size)) if size <= _MOST_HEADER_BYTES else None
            pairs = [(name, entry["shape"]) for name, entry in header.items() if name != "__metadata__"]
            # A malformed shape breaks here and not in the sum.
            [math.prod(shape) for _, shape in pairs]
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise EvidenceMissing(f"{file.name} has no header of a weight file") from error
        yield from pairs
