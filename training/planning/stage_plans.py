"""What each stage of a spec needs of a machine, or why that is not known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from specs.session.design import ModelSource
from specs.session.session_spec import SessionSpec
from specs.stages.finetuning.online_parameters import GrpoParameters
from specs.stages.finetuning.parameters import DpoParameters, SftParameters
from specs.stages.registry import Stage, kind_of
from training.planning import generation_memory, training_memory
from training.planning.model_shapes import PUBLISHED, Shape, find_published_shape, from_config
from training.planning.prompt_lengths import (
    CHARACTERS_A_TOKEN,
    WRITTEN,
    prompt_tokens,
    registered_lengths,
    volume,
)
from training.planning.training_memory import GB, peak

_SHORTEST = 64
"""Tokens: a template's own are among a short row's."""


class StagePlan(NamedTuple):
    """The memory of one stage, in bytes; both None if it is not known, and ``description`` says why."""

    stage: str
    device: str
    """What the stage is granted: ``auto``, ``cpu`` or ``cuda``. Planned is a GPU for ``cuda``, else the CPU."""
    device_bytes: float | None
    host_bytes: float | None
    """Bytes of the machine's memory, in addition to the GPU's."""
    description: str


def plans(spec: SessionSpec, origin: Path) -> Iterator[StagePlan]:
    """Yield the plan of each stage that loads a model; ``path:`` sources are relative to ``origin``."""
    for stage in spec.stages:
        # A script may load a model, and says nothing of it.
        if not kind_of(stage).loads_model:
            continue
        yield plan_of(spec, stage, origin, gpu=getattr(stage.parameters, "device", "auto") == "cuda")


def plan_of(spec: SessionSpec, stage: Stage, origin: Path, *, gpu: bool) -> StagePlan:
    """Return the plan of a stage that loads a model, on a GPU or on the CPU."""
    device = str(getattr(stage.parameters, "device", "auto"))
    if brought := kind_of(stage).plugin:
        return StagePlan(stage.name, device, None, None, f"no plan: {brought} does not say what it needs")
    sources = [shape_of_source(source, origin) for source in _sources(spec, stage)]
    if missing := [why for shape, why in sources if shape is None]:
        return StagePlan(stage.name, device, None, None, f"no plan: {missing[0]}")
    return _plan(spec, stage, device, [shape for shape, _ in sources if shape is not None], origin, gpu=gpu)


def shape_of_source(source: ModelSource, origin: Path) -> tuple[Shape | None, str]:
    """Return the shape of a model, or None and the reason why it is not known.

    A folder's ``config.json`` comes before the ``shape`` that the spec names.
    """
    scheme, _, name = source.source.partition(":")
    message = f"'{source.shape}' is not among the known shapes ({', '.join(PUBLISHED)})" if source.shape else ""
    named = find_published_shape(source.shape) if source.shape else None
    if scheme != "path":
        shape = named or find_published_shape(name)
        return shape, "" if shape else message or f"the shape of '{name}' is not known: name one with model.shape"
    config = (origin / name / "config.json").resolve()
    if (shape := from_config(config)) is not None:
        return shape, ""
    what = f"{config} is not there" if not config.exists() else f"{config} is not that of a decoder that is known"
    return named, "" if named else f"{what}" + (
        f", and {message}" if message else "; name a known shape with model.shape"
    )


def _sources(spec: SessionSpec, stage: Stage) -> list[ModelSource]:
    """Return the sources of the models that a stage loads: a stage's checkpoint has the shape of the model."""
    roles = [role for role in ("model", "control", "judge") if role in stage.inputs]
    control = spec.control
    return [control if control is not None and stage.inputs[role] == "control" else spec.model for role in roles]


def _plan(spec: SessionSpec, stage: Stage, device: str, shapes: list[Shape], origin: Path, *, gpu: bool) -> StagePlan:
    parameters = stage.parameters
    if isinstance(parameters, SftParameters | DpoParameters):
        shape, parameters = shapes[0], _at_longest(parameters, spec, stage, origin)
        on_device = max(
            training_memory.replicas_of(parameters) * training_memory.memory(shape, parameters, gpu=gpu).total(),
            training_memory.merge(shape, parameters, gpu=gpu).device,
        )
        beside = training_memory.host(shape, parameters, gpu=gpu)
        return StagePlan(stage.name, device, on_device, beside, training_memory.describe_plan(shape, parameters))
    form = "completion" if spec.model.kind == "base" else "chat"
    prompt = prompt_tokens(parameters, form, longest_item(spec, stage, origin))
    if isinstance(parameters, GrpoParameters):
        return _of_rollouts(stage, parameters, device, shapes[0], prompt, gpu=gpu)
    at = generation_memory.decoding_of(parameters, prompt)
    # base_model_check loads its models one after the other; another model as judge is in memory next to the first.
    memories = [generation_memory.memory(shape, at, gpu=gpu) for shape in shapes]
    largest = max(memories, key=generation_memory.GenerationMemory.total)
    beside = generation_memory.host(shapes[0], gpu=gpu)
    total = largest.total()
    if stage.inputs.get("judge") not in (None, stage.inputs["model"]):
        total += min(memories, key=generation_memory.GenerationMemory.total).weights
    line = f"{peak(largest, total, gpu=gpu)} with {at.rows} rows of {at.prompt} + {at.new} tokens"
    if gpu:
        line += f"; {beside / GB:.2f} GB of the host's memory"
    if (engine := getattr(parameters, "engine", "batched")) != "batched":
        line += f" (as for engine: batched; '{engine}' has its own memory)"
    return StagePlan(stage.name, device, total, beside, line)


def _at_longest(
    arguments: SftParameters | DpoParameters, spec: SessionSpec, stage: Stage, origin: Path
) -> SftParameters | DpoParameters:
    """Return the parameters with the length that rows can have: batches are padded to their longest row.

    A token is counted for each character, which few scripts exceed.
    """
    if getattr(arguments, "packing", False):
        return arguments
    rows = volume(spec, stage.inputs[kind_of(stage).trains], origin)
    if rows is None:
        return arguments
    longest = max(_SHORTEST, rows.tokens * CHARACTERS_A_TOKEN)
    return arguments if longest >= arguments.max_length else arguments.model_copy(update={"max_length": longest})


def _of_rollouts(
    stage: Stage, grpo_parameters: GrpoParameters, device: str, shape: Shape, prompt: int, *, gpu: bool
) -> StagePlan:
    """Return the plan of a training on rollouts: that of its steps, and of a copy of all weights as reference."""
    texts = training_memory.as_texts(grpo_parameters, prompt)
    memory = training_memory.memory(shape, texts, gpu=gpu)
    copy = memory.weights if grpo_parameters.kl_weight and grpo_parameters.method == "full" else 0.0
    replicas = training_memory.replicas_of(texts)
    total = max(replicas * (memory.total() + copy), training_memory.merge(shape, texts, gpu=gpu).device + copy)
    line = training_memory.describe_plan(shape, texts)
    if copy:
        line += f"; {copy / GB:.2f} GB for the reference"
    return StagePlan(stage.name, device, total, training_memory.host(shape, texts, gpu=gpu), line)


def longest_item(spec: SessionSpec, stage: Stage, origin: Path) -> int:
    """Return the characters of the longest prompt among the registered items that a stage reads."""
    result = 0
    for role in ("items", "prompts", "instructions", "seeds"):
        named = stage.inputs.get(role, "")
        if (lengths := registered_lengths(spec, named, origin)) is not None:
            result = max([result, *lengths])
    # Instructions that models write later stand among the seeds.
    return max(result, WRITTEN) if kind_of(stage).screened else result or WRITTEN
