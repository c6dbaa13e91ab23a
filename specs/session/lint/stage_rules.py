"""Rules on single stages: names, inputs, criteria and ranges. Pure; called by :func:`specs.session.lint.rules.lint`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from specs.session.problems import LintProblem, Loc, closest, suggest
from specs.session.session_spec import SessionSpec
from specs.stages.registry import STAGE_KINDS, Stage, inputs_of, kind_of, names_where, outputs_of
from specs.stages.stage import ArtifactKind

RESERVED = ("model", "control", "heldout", "data", "constitution")
"""Words that already mean something where a stage is referred to."""


_ROLE = re.compile(r"[a-z][a-z0-9_]{0,39}")


def lint_names(spec: SessionSpec) -> Iterator[LintProblem]:
    """Stage names are unique and not reserved."""
    first: dict[str, int] = {}
    for index, stage in enumerate(spec.stages):
        loc: Loc = ("stages", index, "name")
        if stage.name in RESERVED:
            yield LintProblem(loc, f"'{stage.name}' is reserved for references to inputs", "choose another name")
        elif stage.name in first:
            message = f"the name is already used by stages[{first[stage.name]}]"
            yield LintProblem(loc, message, "stage names are unique")
        first.setdefault(stage.name, index)


def lint_inputs(spec: SessionSpec) -> Iterator[LintProblem]:
    """Roles are complete and known; references resolve to an earlier artifact of the right kind."""
    for index, stage in enumerate(spec.stages):
        if kind_of(stage).runs_code:
            yield from _recipe_inputs(spec, index, stage)
            continue
        roles = inputs_of(stage.kind, stage.parameters)
        meant: set[str] = set()
        for role, reference in stage.inputs.items():
            loc: Loc = ("stages", index, "inputs", role)
            read_as = role
            if role not in roles:
                read_as = closest(role, [name for name in roles if name not in stage.inputs]) or ""
                meant.add(read_as)
                yield LintProblem(loc, f"{stage.kind} has no input '{role}'", suggest(role, roles, "it reads"))
            if reference == "heldout" and not kind_of(stage).reads_heldout:
                message = f"the held-out split is not for {stage.kind} stages"
                yield LintProblem(loc, message, _heldout_readers())
            elif read_as:
                yield from _reference(spec, index, loc, reference, roles[read_as])
        for role in roles:
            # A misspelt role is one mistake, not two.
            if role not in stage.inputs and role not in meant:
                hint = _candidates(spec, index, roles[role])
                message = f"input '{role}' is missing: {stage.kind} reads {' and '.join(roles)}"
                yield LintProblem(("stages", index, "inputs", role), message, hint)


def _heldout_readers() -> str:
    return f"only {', '.join(names_where('reads_heldout'))} stages may read it"


def lint_samples(spec: SessionSpec) -> Iterator[LintProblem]:
    """Pairs are made of the samples of a ``generate`` stage, and judged against its own prompts."""
    stages = {stage.name: stage for stage in spec.stages}
    for index, stage in enumerate(spec.stages):
        if not kind_of(stage).pairs_samples or "samples" not in stage.inputs:
            continue
        loc: Loc = ("stages", index, "inputs", "samples")
        reference = stage.inputs["samples"]
        owner = stages.get(reference.partition(".")[0])
        if owner is None or not reference.endswith(".rows"):
            continue  # Told as a reference to nothing, or to something else than rows.
        if not kind_of(owner).sampled_by_task:
            message = f"'{reference}' are rows of a stage of kind {owner.kind}, pairs are made of those of generate"
            yield LintProblem(loc, message, _samples(spec, index))
        elif stage.inputs.get("prompts") not in (None, owner.inputs.get("prompts")):
            message = f"prompts are '{stage.inputs['prompts']}', the samples are of '{owner.inputs.get('prompts')}'"
            yield LintProblem(("stages", index, "inputs", "prompts"), message, "name the prompts of the samples")


def _samples(spec: SessionSpec, index: int) -> str:
    able = [f"{stage.name}.rows" for stage in spec.stages[:index] if kind_of(stage).sampled_by_task]
    return f"there are {', '.join(able)}" if able else "no generate stage comes before it"


def _recipe_inputs(spec: SessionSpec, index: int, stage: Stage) -> Iterator[LintProblem]:
    """A recipe reads any artifact under any name, but nothing that holds or answers held-out items."""
    for role, reference in stage.inputs.items():
        loc: Loc = ("stages", index, "inputs", role)
        if not _ROLE.fullmatch(role):
            yield LintProblem(loc, f"'{role}' cannot be the name of an input", "lower-case letters, digits and '_'")
        if reference == "heldout":
            message = "the held-out split is not for recipe stages"
            yield LintProblem(loc, message, _heldout_readers())
        elif _tells_heldout(spec, index, reference):
            message = f"'{reference}' holds answers to held-out items, which no code of a builder may read"
            yield LintProblem(loc, message, "what they add up to is measured by Peergate")
        else:
            yield from _reference(spec, index, loc, reference, None)


def _tells_heldout(spec: SessionSpec, index: int, reference: str) -> bool:
    """Say whether an artifact of an earlier stage was made from held-out items, at any remove; weights are not text."""
    head, _, tail = reference.partition(".")
    place = next((number for number, one in enumerate(spec.stages[:index]) if one.name == head), None)
    if place is None:
        return False
    source = spec.stages[place]
    if outputs_of(source.kind, source.parameters).get(tail, "checkpoint") == "checkpoint":
        return False
    return source.reads_heldout or any(_tells_heldout(spec, place, one) for one in source.inputs.values())


def lint_trained(spec: SessionSpec) -> Iterator[LintProblem]:
    """A recipe that trains names one of its own inputs, a checkpoint."""
    for index, stage in enumerate(spec.stages):
        if not kind_of(stage).runs_code or stage.parameters.trains is None:
            continue
        loc: Loc = ("stages", index, "parameters", "trains")
        role = stage.parameters.trains
        if role not in stage.inputs:
            hint = suggest(role, stage.inputs, "its inputs are")
            yield LintProblem(loc, f"the stage has no input '{role}' to train", hint)
            continue
        needed = list(_reference(spec, index, ("stages", index, "inputs", role), stage.inputs[role], "checkpoint"))
        # The rule on inputs reports a wrong reference.
        if needed and not list(_reference(spec, index, loc, stage.inputs[role], None)):
            message = f"trains '{role}', and '{stage.inputs[role]}' is no checkpoint"
            yield LintProblem(loc, message, _candidates(spec, index, "checkpoint"))


def lint_code(spec: SessionSpec) -> Iterator[LintProblem]:
    """Code of a builder is allowed by name, where it cannot reach held-out items, and only if somebody can write it."""
    for index, stage in enumerate(spec.stages):
        loc: Loc = ("stages", index, "allow_code")
        kind: Loc = ("stages", index, "kind")
        if not kind_of(stage).runs_code:
            if stage.allow_code:
                heldout = kind_of(stage).reads_heldout
                why = "reads held-out items" if heldout else "is judged by what Peergate's own code reads back"
                message = f"{stage.kind} {why}: it runs no code of a builder"
                yield LintProblem(loc, message, "remove the line; a recipe stage runs code")
            continue
        if not stage.allow_code:
            message = "a recipe runs code that the builder hands in, and the stage does not allow it"
            yield LintProblem(loc, message, "write allow_code: true")
        if stage.parameters.code is not None:
            message = "the code of a recipe is handed in by the builder, not registered"
            yield LintProblem(("stages", index, "parameters", "code"), message, "remove the line")
        if spec.builder.vendor == "playbook":
            message = "'playbook' writes no code, so this stage could never start"
            yield LintProblem(kind, message, "name a builder that asks a model")


def _reference(
    spec: SessionSpec, index: int, loc: Loc, reference: str, needed: ArtifactKind | None
) -> Iterator[LintProblem]:
    """Check that a reference resolves to an earlier artifact, and of the right kind where one is needed."""
    names = [stage.name for stage in spec.stages]
    head, _, tail = reference.partition(".")
    found: ArtifactKind
    if reference == "model":
        found = "checkpoint"
    elif reference == "control":
        if spec.control is None:
            message = "the spec names no control"
            yield LintProblem(loc, message, "write control: {source: ..., kind: instruct}")
            return
        found = "checkpoint"
    elif reference == "heldout":
        found = "items"
    elif reference == "constitution":
        found = "constitution"
    elif head == "data":
        if tail not in spec.data:
            hint = suggest(tail, spec.data, "data files")
            yield LintProblem(loc, f"there is no data file '{tail}'", hint)
            return
        found = "items"
    elif head not in names:
        hint = suggest(head, names[:index], "stages before it")
        yield LintProblem(loc, f"'{reference}' names the unknown stage '{head}'", hint)
        return
    else:
        source = names.index(head)
        if source >= index:
            where = "the stage itself" if source == index else f"stages[{source}], which comes later"
            yield LintProblem(loc, f"'{reference}' points to {where}", "inputs come from earlier stages")
            return
        outputs = outputs_of(spec.stages[source].kind, spec.stages[source].parameters)
        if tail not in outputs:
            hint = _left_by(spec.stages[source], tail)
            message = f"stage '{head}' ({spec.stages[source].kind}) has no output '{tail}'"
            yield LintProblem(loc, message, hint)
            return
        found = outputs[tail]
    if needed is not None and found != needed:
        hint = _candidates(spec, index, needed)
        yield LintProblem(loc, f"needs {_a(needed)}, '{reference}' is {_a(found)}", hint)


def _left_by(stage: Stage, output: str) -> str:
    """Say what a stage leaves, to who reads something else of it."""
    if kind_of(stage).runs_code and output == "checkpoint":
        return "it leaves one where its parameters say trains: INPUT"
    return suggest(output, outputs_of(stage.kind, stage.parameters), "it leaves")


def _candidates(spec: SessionSpec, index: int, needed: ArtifactKind) -> str:
    """List what could stand as an input of this artifact kind."""
    checkpoints = ["model", "control"] if spec.control else ["model"]
    found = {"checkpoint": checkpoints, "constitution": ["constitution"]}.get(needed, [])
    if needed == "items":
        found += [f"data.{name}" for name in spec.data]
        if kind_of(spec.stages[index]).reads_heldout:
            found.append("heldout")
    for stage in spec.stages[:index]:
        found += [
            f"{stage.name}.{out}" for out, kind in outputs_of(stage.kind, stage.parameters).items() if kind == needed
        ]
    return f"{needed} here: {', '.join(found)}" if found else f"no earlier stage leaves {needed}"


def _a(kind: ArtifactKind) -> str:
    return {"checkpoint": "a checkpoint", "files": "a folder of files", "constitution": "the constitution"}.get(
        kind, kind
    )


def lint_ranges(spec: SessionSpec) -> Iterator[LintProblem]:
    """Ranges are for numeric parameters, lie inside their limits and hold the stage's own value."""
    for index, stage in enumerate(spec.stages):
        numeric = numeric_parameters(kind_of(stage).parameters)
        arm = kind_of(stage).arm is not None and stage.name in spec.analysis.compared()
        for name, allowed in stage.ranges.items():
            loc: Loc = ("stages", index, "ranges", name)
            if name not in kind_of(stage).parameters.model_fields:
                message = f"{stage.kind} has no parameter '{name}'"
                yield LintProblem(loc, message, suggest(name, numeric, "ranges can be given for"))
            elif name not in numeric:
                message = f"'{name}' is not a number, so it has no range"
                yield LintProblem(loc, message, f"ranges can be given for: {', '.join(numeric)}")
            elif name == "seed":
                message = "the seed is registered under analysis.seeds, a builder cannot move it"
                yield LintProblem(loc, message, "remove the range")
            elif arm:
                message = "this stage is an arm of the registered analysis, a builder cannot move its parameters"
                yield LintProblem(loc, message, "remove the range")
            elif allowed.min > allowed.max:
                yield LintProblem(loc, f"min {allowed.min:g} is larger than max {allowed.max:g}", "swap them")
            else:
                limit = _outside_limits(stage.kind, name, numeric[name], allowed.min, allowed.max)
                value = getattr(stage.parameters, name)
                if limit:
                    yield LintProblem(loc, limit)
                elif value is None:
                    yield LintProblem(loc, f"{name} has a range but no value", "give it under parameters")
                elif not allowed.holds(value):
                    message = f"{name} = {value:g} lies outside its own range [{allowed.min:g}, {allowed.max:g}]"
                    yield LintProblem(loc, message, "the registered value is the first one tried")


def numeric_parameters(model: type[BaseModel]) -> dict[str, type[int] | type[float]]:
    """Return the parameters a range can be given for, with their number type."""
    found: dict[str, type[int] | type[float]] = {}
    for name, info in model.model_fields.items():
        kinds = _types(info.annotation)
        if float in kinds:
            found[name] = float
        elif int in kinds:
            found[name] = int
    return found


def _types(annotation: Any) -> set[Any]:
    arguments = get_args(annotation)
    return {annotation} if not arguments else {kind for argument in arguments for kind in _types(argument)}


def _outside_limits(kind: str, name: str, number: type[int] | type[float], low: float, high: float) -> str:
    """Return what is wrong with the ends of a range as values of the parameter, or nothing."""
    model: type[BaseModel] = STAGE_KINDS[kind].parameters
    for end, value in (("min", low), ("max", high)):
        if number is int and not value.is_integer():
            return f"{end} {value:g} is not a whole number, {name} is one"
        try:
            model.model_validate({name: number(value)})
        except ValidationError as error:
            said = error.errors(include_url=False)[0]["msg"].removeprefix("Input should be ")
            return f"{end} {value:g} is outside the limits of {name}: must be {said}"
    return ""
