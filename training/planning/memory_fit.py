"""Whether planned memory fits the machine that will run a stage, and the cheapest changes that would. No torch.

Planned memory is an upper bound (see :mod:`training.planning.stage_plans`): what exceeds a machine is refused before
anything is paid for, what comes within a tenth of it is a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from specs.session.session_spec import SessionSpec
from specs.stages.finetuning.online_parameters import GrpoParameters
from specs.stages.finetuning.parameters import DpoParameters, SftParameters
from specs.stages.registry import Stage, kind_of
from training.planning.stage_plans import StagePlan, plan_of
from training.planning.training_memory import GB

CARD_GB: Mapping[str, float] = {
    **{"T4": 16, "V100": 16, "V100-32GB": 32, "L4": 24, "A10": 24, "A10G": 24, "A40": 48, "L40": 48, "L40S": 48},
    **{"RTX3090": 24, "RTX4090": 24, "RTX5090": 32, "RTXA6000": 48, "RTX6000-Ada": 48},
    **{"A100": 40, "A100-80GB": 80, "H100": 80, "GH200": 96, "H200": 141, "B200": 180, "MI300X": 192},
}
"""Memory of a card in GB of 10**9 bytes, by the name that launchers use; from the makers' data sheets."""
NEAR = 0.9
"""The share of a machine's memory from which a plan is warned of."""
_FEWEST_TOKENS = 64
"""The shortest ``max_length`` that is offered."""
MOST_CHANGES = 3


class Capacity(NamedTuple):
    """Memory that a stage may use."""

    name: str
    bytes: float
    gpu: bool


class Misfit(NamedTuple):
    """A stage whose planned memory exceeds, or nearly fills, what will run it."""

    stage: str
    message: str
    changes: tuple[str, ...]
    """Changes of its parameters, each of which would fit, the least intrusive first."""
    exceeds: bool


def misfits(spec: SessionSpec, origin: Path, capacities: Mapping[str, Capacity]) -> Iterator[Misfit]:
    """Yield the stages that do not fit, or hardly; ``capacities`` are by stage, for those where it is known."""
    for stage in spec.stages:
        capacity = capacities.get(stage.name)
        plan = plan_of(spec, stage, origin, gpu=capacity.gpu) if capacity and kind_of(stage).loads_model else None
        needed = _needed(plan)
        if capacity is None or needed is None or needed <= NEAR * capacity.bytes:
            continue
        exceeds = needed > capacity.bytes
        message = f"{needed / GB:.2f} GB are planned, {capacity.name} has {capacity.bytes / GB:.2f} GB"
        changes = tuple(_changes(spec, stage, origin, capacity)) if exceeds else ()
        yield Misfit(stage.name, message, changes, exceeds)


def _needed(plan: StagePlan | None) -> float | None:
    return None if plan is None else plan.device_bytes


def _changes(spec: SessionSpec, stage: Stage, origin: Path, capacity: Capacity) -> Iterator[str]:
    """Yield up to :data:`MOST_CHANGES` changes that would fit; combined ones only if no single one does."""

    def fits(**values: Any) -> bool:
        changed = _replace_parameters(stage, values)
        needed = _needed(plan_of(spec, changed, origin, gpu=capacity.gpu)) if changed else None
        return needed is not None and needed <= NEAR * capacity.bytes

    single = [values for values in _single_changes(stage, capacity) if fits(**values)]
    fitting = _least(single) or [values for values in _combined_changes(stage, capacity) if fits(**values)][:1]
    yield from (_words(values) for values in fitting[:MOST_CHANGES])


def _least(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep, of changes to the same parameters, the first: they come with the least intrusive value first."""
    remaining: dict[tuple[str, ...], dict[str, Any]] = {}
    for values in changes:
        remaining.setdefault(tuple(values), values)
    return list(remaining.values())


def _single_changes(stage: Stage, capacity: Capacity) -> Iterator[dict[str, Any]]:
    parameters = stage.parameters
    batch = int(getattr(parameters, "batch_size", 1))
    trains = isinstance(parameters, SftParameters | DpoParameters | GrpoParameters)
    if trains and not parameters.gradient_checkpointing:
        yield {"gradient_checkpointing": True}
    for size in _halves(batch):
        accumulation = getattr(parameters, "gradient_accumulation", None)
        more = {} if accumulation is None else {"gradient_accumulation": accumulation * batch // size}
        yield {"batch_size": size} | more
    if isinstance(parameters, SftParameters | DpoParameters):
        for length in _halves(parameters.max_length):
            if length >= _FEWEST_TOKENS:
                yield {"max_length": length}
    if trains and parameters.method == "full":
        yield {"method": "lora"}
    if trains and parameters.method != "qlora" and capacity.gpu:
        yield {"method": "qlora"}


def _combined_changes(stage: Stage, capacity: Capacity) -> Iterator[dict[str, Any]]:
    parameters = stage.parameters
    if not isinstance(parameters, SftParameters | DpoParameters | GrpoParameters):
        return
    small: dict[str, Any] = {"gradient_checkpointing": True, "batch_size": 1}
    accumulation = getattr(parameters, "gradient_accumulation", None)
    if accumulation is not None:
        small["gradient_accumulation"] = accumulation * parameters.batch_size
    methods = [parameters.method, "lora", *(["qlora"] if capacity.gpu else [])]
    for method in dict.fromkeys(methods):
        change = {} if method == parameters.method else {"method": method}
        yield change | small
        for length in _halves(getattr(parameters, "max_length", 0)):
            if length >= _FEWEST_TOKENS:
                yield change | small | {"max_length": length}


def _halves(value: int) -> Iterator[int]:
    while value > 1:
        value //= 2
        yield value


def _replace_parameters(stage: Stage, values: Mapping[str, Any]) -> Stage | None:
    """Return a stage with other parameters, or None if they do not go together."""
    stated = stage.parameters.model_dump(mode="json", exclude_unset=True)
    try:
        parameters = type(stage.parameters).model_validate(stated | dict(values))
    except ValidationError:
        return None
    return stage.model_copy(update={"parameters": parameters})


def _words(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}: {str(value).lower() if isinstance(value, bool) else value}" for name, value in values.items()
    )
