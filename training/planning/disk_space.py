"""The disk that checkpoints, packages, exports and snapshots of a session will take, before it begins. No torch.

A checkpoint holds all weights, 2 or 4 bytes each, adapters next to them in float32; a snapshot what is trained and its
optimizer state. How many snapshots there are follows from the most data that a stage can get.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from specs.session.session_spec import SessionSpec
from specs.stages.base.stage import WEIGHTS
from specs.stages.finetuning.online_parameters import GrpoParameters
from specs.stages.finetuning.parameters import DpoParameters, SftParameters
from specs.stages.packaging.parameters import ExportParameters
from specs.stages.recipes.parameters import RecipeParameters
from specs.stages.registry import Stage, kind_of, outputs_of
from training.planning.prompt_lengths import volume
from training.planning.stage_plans import shape_of_source
from training.planning.training_memory import as_texts, memory, replicas_of, trained_parameters
from training.rules.finetuning.schedules import steps_of

_EXPORTED = {"f32": 4.0, "f16": 2.0, "q8_0": 34 / 32}
"""Bytes a parameter, by the format of an export."""


class ByteRange(NamedTuple):
    """Bytes: at least, and at most."""

    least: float
    most: float


class StageDisk(NamedTuple):
    """What one attempt of a stage leaves in bytes; None where it is not known."""

    stage: str
    weights: ByteRange | None
    snapshots: ByteRange | None
    steps: float
    """The most that saved steps take, from which it could resume; they are deleted at its end."""

    def most(self) -> float:
        """Return the most bytes it may leave, saved steps included; what is not known counts as nothing."""
        return sum(value.most for value in (self.weights, self.snapshots) if value is not None) + self.steps

    def as_json(self) -> dict[str, Any]:
        """Return it as `spec check --json` prints it."""
        ranges = {"weights": self.weights, "snapshots": self.snapshots}
        return self._asdict() | {name: None if value is None else value._asdict() for name, value in ranges.items()}


class Disk(NamedTuple):
    """What one attempt of each stage that leaves weights takes together."""

    stages: tuple[StageDisk, ...]

    def total(self) -> ByteRange:
        """Return the sum of what is known; saved steps count once, those of the stage with most."""
        known = [value for stage in self.stages for value in (stage.weights, stage.snapshots) if value is not None]
        passing = max((stage.steps for stage in self.stages), default=0.0)
        return ByteRange(sum(value.least for value in known), sum(value.most for value in known) + passing)

    def unknown(self) -> list[str]:
        """Return the stages of which something is not known."""
        return [stage.stage for stage in self.stages if stage.weights is None or stage.snapshots is None]


def disk(spec: SessionSpec, origin: Path) -> Disk:
    """Return what the stages of a spec leave; ``origin`` is the folder of the spec file."""
    return Disk(tuple(_stage(spec, stage, origin) for stage in spec.stages if _leaves_weights(stage)))


def _leaves_weights(stage: Stage) -> bool:
    return isinstance(stage.parameters, ExportParameters) or any(
        kind in WEIGHTS for kind in outputs_of(stage.kind, stage.parameters).values()
    )


def _stage(spec: SessionSpec, stage: Stage, origin: Path) -> StageDisk:
    weights = _weights(spec, stage, origin)
    texts = _as_texts(stage.parameters)
    if not isinstance(texts, SftParameters | DpoParameters):
        return StageDisk(stage.name, weights, ByteRange(0, 0), 0.0)
    shape, _ = shape_of_source(spec.model, origin)
    saves_steps = texts.checkpoint_steps is not None or texts.early_stopping is not None
    if shape is None or not (texts.leaves_snapshots or saves_steps):
        return StageDisk(stage.name, weights, None if texts.leaves_snapshots else ByteRange(0, 0), 0.0)
    stored_memory = memory(shape, texts, gpu=texts.device == "cuda")
    snapshot_bytes, trained = stored_memory.gradients + stored_memory.optimizer, trained_parameters(shape, texts)
    passing = 2 * snapshot_bytes if saves_steps else 0.0
    if texts.early_stopping is not None:
        # The weights of the best reading, as large as the gradients.
        passing += stored_memory.gradients
    if not texts.leaves_snapshots:
        return StageDisk(stage.name, weights, ByteRange(0, 0), passing)
    data = volume(spec, stage.inputs[kind_of(stage).trains], origin)
    if data is None:
        return StageDisk(stage.name, weights, None, passing)
    steps = steps_of(data.texts, stage.parameters.model_dump())
    replicas = replicas_of(texts)
    if texts.distributed is not None:
        # The outer optimizer's momentum, and masters where the trained weights have 16 bits.
        count = bool(texts.distributed.outer.momentum) + (
            texts.method == "full" and stored_memory.gradients < 4 * trained
        )
        snapshot_bytes += 4.0 * trained * count
    return StageDisk(
        stage.name, weights, ByteRange(0, replicas * snapshot_bytes * len(texts.snapshots_of(steps))), passing
    )


def _as_texts(arguments: Any) -> Any:
    """Return parameters, of rollouts those of a training that saves as much."""
    return as_texts(arguments, 0) if isinstance(arguments, GrpoParameters) else arguments


def _weights(spec: SessionSpec, stage: Stage, origin: Path) -> ByteRange | None:
    """Return the size of a stage's checkpoint: as large as what it is made from, in the type of its training."""
    parameters = stage.parameters
    if isinstance(parameters, ExportParameters):
        shape, _ = shape_of_source(spec.model, origin)
        size = None if shape is None else shape.parameters() * _EXPORTED[parameters.format]
        return None if size is None else ByteRange(size, size)
    role = (parameters.trains if isinstance(parameters, RecipeParameters) else None) or "model"
    if kind_of(stage).plugin or role not in stage.inputs:
        return None
    parameters = _as_texts(parameters)
    if not isinstance(parameters, SftParameters | DpoParameters):
        return _size_of(spec, stage.inputs[role], origin)
    shape, _ = shape_of_source(spec.model, origin)
    if shape is None:
        return None
    half = parameters.method == "qlora" or parameters.precision == "bfloat16"
    may_be_half = half or (parameters.precision == "auto" and parameters.device != "cpu")
    whole = not half and not (parameters.precision == "auto" and parameters.device == "cuda")
    adapters = 4.0 * trained_parameters(shape, parameters) if parameters.method != "full" else 0.0
    every = shape.parameters()
    return ByteRange(every * (2 if may_be_half else 4) + adapters, every * (4 if whole else 2) + adapters)


def _size_of(spec: SessionSpec, reference: str, origin: Path) -> ByteRange | None:
    owner = reference.partition(".")[0]
    made = next((stage for stage in spec.stages if stage.name == owner), None)
    if made is not None:
        return _weights(spec, made, origin)
    source = spec.control if reference == "control" and spec.control is not None else spec.model
    shape, _ = shape_of_source(source, origin)
    return None if shape is None else ByteRange(2.0 * shape.parameters(), 4.0 * shape.parameters())
