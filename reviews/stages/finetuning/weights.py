"""What weight files show of a training: how many parameters there are, and how far steps at its rates moved them.

A step of Adam moves a weight by about the learning rate (Kingma & Ba 2015, section 2.1, arXiv:1412.6980). Steps that
agree add up to the sum of the rates; mere noise, the worst case of a live optimiser, to about the root of the sum of
their squares. Figures of live and dead runs: ``docs/decisions/0078-a-diagnosis-is-made-of-checks.md``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from reviews.evidence.evidence import Evidence
from reviews.stages.finetuning.measure import steps_of
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
    return _course(change.changed, shifts, [row.learning_rate for row in steps_of(evidence)])


def _course(changed: int, shifts: tuple[Shift, ...], rates: list[float]) -> WeightMovement:
    due_at, fine = math.hypot(*rates), _ROUNDED * max(rates)
    parts = [shift.moved for shift in shifts if shift.finest <= fine]
    if not due_at or not parts:
        return WeightMovement(changed)
    return WeightMovement(changed, max(parts), due_at, max(parts) / due_at)


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
