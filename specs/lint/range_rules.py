"""Rules on what a builder may move: the ranges and the choices of a stage's parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from specs.session.session_spec import SessionSpec
from specs.stages.registry import Stage, kind_of
from specs.system.yaml.problems import LintProblem, Loc, suggest


def lint_ranges(spec: SessionSpec, _: int, stage: Stage) -> Iterator[LintProblem]:
    """Ranges are for numeric parameters, lie inside their limits and hold the stage's own value."""
    model = kind_of(stage).parameters
    numeric = numeric_parameters(model)
    arm = kind_of(stage).arm is not None and stage.name in spec.analysis.list_compared_stages()
    for name, allowed in stage.ranges.items():
        loc: Loc = ("ranges", name)
        if name not in model.model_fields:
            message = f"{stage.kind} has no parameter '{name}'"
            yield LintProblem(loc, message, suggest(name, numeric, "ranges can be given for"))
        elif name not in numeric:
            message = f"'{name}' is not a number, so it has no range"
            yield LintProblem(loc, message, f"ranges can be given for: {', '.join(numeric)}")
        elif name == "seed":
            message = "the seed is registered for all stages, a builder cannot move it"
            yield LintProblem(loc, message, "remove the range")
        elif arm:
            message = "this stage is an arm of the registered analysis, a builder cannot move its parameters"
            yield LintProblem(loc, message, "remove the range")
        elif allowed.min > allowed.max:
            yield LintProblem(loc, f"min {allowed.min:g} is larger than max {allowed.max:g}", "swap them")
        elif limit := _outside_limits(model, name, numeric[name], allowed.min, allowed.max):
            yield LintProblem(loc, limit)
        elif (value := getattr(stage.parameters, name)) is None:
            yield LintProblem(loc, f"{name} has a range but no value", "give it under parameters")
        elif not allowed.holds(value):
            message = f"{name} = {value:g} lies outside its own range [{allowed.min:g}, {allowed.max:g}]"
            yield LintProblem(loc, message, "the registered value is the first one tried")


def lint_choices(spec: SessionSpec, _: int, stage: Stage) -> Iterator[LintProblem]:
    """Choices are for parameters that are words or switches, and the stage's own value is the first one tried."""
    model = kind_of(stage).parameters
    arm = kind_of(stage).arm is not None and stage.name in spec.analysis.list_compared_stages()
    for name, values in stage.choices.items():
        loc: Loc = ("choices", name)
        if name not in model.model_fields:
            yield LintProblem(
                loc, f"{stage.kind} has no parameter '{name}'", suggest(name, model.model_fields, "it has")
            )
        elif name in stage.ranges:
            yield LintProblem(loc, f"'{name}' has a range and choices", "remove one of them")
        elif arm:
            message = "this stage is an arm of the registered analysis, a builder cannot move its parameters"
            yield LintProblem(loc, message, "remove the choices")
        elif getattr(stage.parameters, name) not in values:
            message = f"{name} = {getattr(stage.parameters, name)!r} is not among its own choices"
            yield LintProblem(loc, message, "the registered value is the first one tried")
        elif wrong := [value for value in values if not _takes(stage, name, value)]:
            yield LintProblem(loc, f"{name} cannot be {wrong[0]!r} in this stage", "remove it")


def _takes(stage: Stage, name: str, value: str | bool) -> bool:
    try:
        kind_of(stage).parameters.model_validate(stage.parameters.model_dump() | {name: value}, strict=True)
    except ValidationError:
        return False
    return True


def numeric_parameters(model: type[BaseModel]) -> dict[str, type[int] | type[float]]:
    """Return the parameters a range can be given for, with their number type."""
    types = {name: _types(info.annotation) for name, info in model.model_fields.items()}
    return {name: float if float in results else int for name, results in types.items() if results & {float, int}}


def _types(annotation: Any) -> set[Any]:
    arguments = get_args(annotation)
    return {annotation} if not arguments else {kind for argument in arguments for kind in _types(argument)}


def _outside_limits(model: type[BaseModel], name: str, number: type[int] | type[float], low: float, high: float) -> str:
    """Return what is wrong with the ends of a range as values of the parameter, or nothing."""
    for end, value in (("min", low), ("max", high)):
        if number is int and not value.is_integer():
            return f"{end} {value:g} is not a whole number, {name} is one"
        try:
            model.model_validate({name: number(value)})
        except ValidationError as error:
            # A default computed from the value is not a separate fault.
            faults = [fault for fault in error.errors(include_url=False) if fault["loc"] in ((name,), ())]
            if not faults:
                continue
            text = faults[0]["msg"].removeprefix("Input should be ")
            return f"{end} {value:g} is outside the limits of {name}: must be {text}"
    return ""
