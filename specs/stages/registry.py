"""Every stage kind by its name: Peergate's own, and the kinds that other distributions bring (``peergate.stages``)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from operator import getitem
from typing import Annotated, Any, Union, cast, get_args

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter, ValidationError, ValidationInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from specs.stages.base.kind import ArmTraits, StageKind
from specs.stages.base.metric import RowMetric, wrong_names
from specs.stages.base.stage import ArtifactKind, StageBase
from specs.stages.critique.kinds import KINDS as CRITIQUE
from specs.stages.evaluation.kinds import KINDS as EVALUATION
from specs.stages.finetuning.kinds import KINDS as FINETUNING
from specs.stages.finetuning.rows import TrainingRow
from specs.stages.generation.kinds import KINDS as GENERATION
from specs.stages.packaging.kinds import KINDS as PACKAGING
from specs.stages.programs.kinds import KINDS as PROGRAMS
from specs.stages.recipes.kinds import KINDS as RECIPES
from specs.stages.traces.kinds import KINDS as TRACES
from specs.system import plugins
from specs.system.errors import PluginFault
from specs.system.text import plain

GROUP: plugins.Group = "peergate.stages"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_BUILT_IN = (*GENERATION, *CRITIQUE, *FINETUNING, *EVALUATION, *PROGRAMS, *PACKAGING, *RECIPES, *TRACES)


class _Kinds(Mapping[str, StageKind]):
    """Kinds by name. Iterating yields the loaded kinds; looking up another name loads its kind."""

    def __init__(self) -> None:
        self._loaded = {stage_kind.name: stage_kind for stage_kind in _BUILT_IN}

    def __getitem__(self, name: str) -> StageKind:
        """Return the kind of a name; raises KeyError if it is unknown, PluginFault if it cannot be used."""
        if name not in self._loaded:
            point = plugins.find(GROUP, name)
            if point is None:
                raise KeyError(name)
            self._loaded[name] = self._require_valid_kind(
                plugins.load(point), name, plugins.where(point), plugins.release(point)
            )
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded)

    def __len__(self) -> int:
        return len(self._loaded)

    def _require_valid_kind(self, result: Any, name: str, where: str, distribution: str) -> StageKind:
        if not isinstance(result, StageKind):
            raise PluginFault(f"is a {type(result).__name__}, not a StageKind", where=where)
        if fault := next(self._faults(result, name), ""):
            raise PluginFault(fault, where=where)
        return replace(result, plugin=distribution)

    def _faults(self, stage_kind: StageKind, name: str) -> Iterator[str]:
        if stage_kind.name != name:
            yield f"its kind is named {plain(repr(stage_kind.name), 60)}, not '{name}'"
        if "seed" not in stage_kind.parameters.model_fields:
            yield "its parameters have no seed, which every stage has"
        if "rows" not in stage_kind.outputs or "rows" not in stage_kind.rows:
            yield "it leaves no output 'rows' of a declared form: nothing could be measured"
        for place, artifact in (*stage_kind.inputs.items(), *stage_kind.outputs.items()):
            if artifact not in get_args(ArtifactKind):
                able = ", ".join(get_args(ArtifactKind))
                yield f"'{place}' is of kind {plain(repr(artifact), 60)}; inputs and outputs are of kind {able}"
        if stage_kind.trains and stage_kind.trains not in stage_kind.inputs:
            yield f"it trains on {plain(repr(stage_kind.trains), 60)}, its inputs are {', '.join(stage_kind.inputs)}"
        if stage_kind.replay_job and not issubclass(stage_kind.rows["rows"], TrainingRow):
            yield "a witness trains its steps again, and its rows are not derived from TrainingRow"
        used = {metric.id: kind.name for kind in self._loaded.values() for metric in kind.metrics}
        for metric in stage_kind.metrics:
            if metric.id in used:
                yield f"metric '{metric.id}' is already that of {used[metric.id]}"
            if isinstance(metric, RowMetric) and (wrong := wrong_names(metric, stage_kind.rows)):
                yield f"metric '{metric.id}' {wrong}"


STAGE_KINDS: Mapping[str, StageKind] = _Kinds()


def built_in_kinds() -> tuple[StageKind, ...]:
    """Return Peergate's own kinds."""
    return _BUILT_IN


def known_names() -> tuple[str, ...]:
    """Return the names of all kinds, installed ones included, without loading any."""
    own = [stage_kind.name for stage_kind in _BUILT_IN]
    return (
        *own,
        *(entry_point.name for entry_point in plugins.find_entry_points(GROUP) if entry_point.name not in own),
    )


def kind_of(stage: StageBase) -> StageKind:
    """Return the kind of a stage."""
    return STAGE_KINDS[stage.kind]


def arm_of(stage: StageBase) -> ArmTraits:
    """Return what the analysis asks of the stage's kind; raises ValueError if none of this kind is an arm."""
    arm = kind_of(stage).arm
    if arm is None:
        raise ValueError(f"'{stage.name}' is of kind {stage.kind}, which is not an arm of an analysis")
    return arm


def names_where(wanted: str) -> tuple[str, ...]:
    """Return the names of the loaded kinds that have a trait."""
    return tuple(stage_kind.name for stage_kind in STAGE_KINDS.values() if getattr(stage_kind, wanted))


class _AnyKind:
    """A stage of a spec is read by the model of its kind; JSON Schema shows the union of Peergate's own."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        as_it_is = core_schema.simple_ser_schema("any")
        return core_schema.with_info_plain_validator_function(_read_stage, serialization=as_it_is)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(_any_built_in().core_schema)


@cache
def _any_built_in() -> TypeAdapter[Any]:
    """Return the union of the models of Peergate's own kinds, which takes long to build and few commands need."""
    every: Any = Union[tuple(stage_kind.stage for stage_kind in _BUILT_IN)]  # noqa: UP007
    return TypeAdapter(getitem(cast(Any, Annotated), (every, Field(discriminator="kind"))))


def _read_stage(value: Any, info: ValidationInfo) -> Any:
    kind: Any = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    try:
        model = STAGE_KINDS[kind].stage
    except (KeyError, TypeError):
        return _any_built_in().validate_python(value)  # Which says what is wrong with it.
    if isinstance(value, model):
        return value
    try:
        # A function is given Python's values, in which a list is not a tuple; JSON is always read strictly.
        is_json = info.mode == "json"
        return model.model_validate_json(json.dumps(value), strict=True) if is_json else model.model_validate(value)
    except ValidationError as error:
        raise _of_kind(kind, error) from error


def _of_kind(kind: str, error: ValidationError) -> ValidationError:
    """Return the error with the kind at the head of each place, as a union reports it."""
    lines = [
        InitErrorDetails(
            type=PydanticCustomError(
                error_details["type"], "{message}", {**error_details.get("ctx", {}), "message": error_details["msg"]}
            )
            if error_details["type"] in ("value_error", "assertion_error")
            else error_details["type"],
            loc=(kind, *error_details["loc"]),
            input=error_details["input"],
            ctx=error_details.get("ctx", {}),
        )
        for error_details in error.errors(include_url=False)
    ]
    return ValidationError.from_exception_data(error.title, lines)


Stage = Annotated[StageBase, _AnyKind()]


def inputs_of(kind: str, parameters: Any) -> dict[str, ArtifactKind]:
    """Return what a stage reads: role -> artifact kind. A recipe reads what its stage names, under any role."""
    return STAGE_KINDS[kind].inputs_of(parameters)


def outputs_of(kind: str, parameters: Any) -> dict[str, ArtifactKind]:
    """Return what a stage leaves: role -> artifact kind."""
    return STAGE_KINDS[kind].outputs_of(parameters)


def resolve_parameters(stage: StageBase, changes: dict[str, Any]) -> Any:
    """Return the stage's parameters with ``changes`` applied, each inside its registered range.

    The digest of code is a parameter, so that a grant is for that code and no other.

    Raises:
        ValueError: a change names no range and no choices of the stage, leaves them or the parameter's limits; code is
            not allowed, or is missing where the stage runs nothing else.
    """
    kind = kind_of(stage)
    if kind.runs_code and "code" not in changes and not stage.script:
        raise ValueError(f"stage '{stage.name}' runs code, and none was handed in")
    for name, value in changes.items():
        if name == "code":
            _require_code(stage, value)
            continue
        if (choices := stage.choices.get(name)) is not None:
            # By type too: to Python True is 1.
            if not any(type(value) is type(choice) and value == choice for choice in choices):
                raise ValueError(f"{name} = {value!r} is not among the registered choices {list(choices)}")
            continue
        allowed = stage.ranges.get(name)
        if allowed is None:
            raise ValueError(f"'{name}' has no allowed range in stage '{stage.name}'")
        if isinstance(value, bool) or not isinstance(value, int | float) or not allowed.holds(value):
            raise ValueError(f"{name} = {value!r} leaves the allowed range [{allowed.min:g}, {allowed.max:g}]")
    return kind.parameters.model_validate(stage.parameters.model_dump() | changes)


def _require_code(stage: StageBase, value: Any) -> None:
    if not kind_of(stage).runs_code or not stage.allow_code:
        raise ValueError(f"stage '{stage.name}' ({stage.kind}) does not allow code")
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ValueError(f"code = {value!r} is not the digest of a script that was handed in")
