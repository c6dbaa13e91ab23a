"""Rules on one stage of a spec: inputs, code, ranges and its pilot. Places are keys of the stage."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from specs.benchmarks.lm_eval_file import is_task_file
from specs.data.conversion import As
from specs.session.problems import LintProblem, Loc, closest, suggest
from specs.session.session_spec import SessionSpec
from specs.stages.metric_catalog import METRICS
from specs.stages.recipes.script_file import path_of
from specs.stages.registry import Stage, inputs_of, kind_of, names_where, outputs_of
from specs.stages.stage import ArtifactKind, Criterion

RESERVED = ("model", "control", "heldout", "data", "constitution")
"""Words that already mean something where a stage is referred to."""

_ROLE = re.compile(r"[a-z][a-z0-9_]{0,39}")


def lint_name(spec: SessionSpec, index: int, stage: Stage) -> Iterator[LintProblem]:
    """Stage names are unique and not reserved."""
    first = [one.name for one in spec.stages].index(stage.name)
    if stage.name in RESERVED:
        yield LintProblem(("name",), f"'{stage.name}' is reserved for references to inputs", "choose another name")
    elif first < index:
        yield LintProblem(("name",), f"the name is already used by stages[{first}]", "stage names are unique")


def lint_inputs(spec: SessionSpec, index: int, stage: Stage) -> Iterator[LintProblem]:
    """Roles are complete and known; references resolve to an earlier artifact of the right kind."""
    if kind_of(stage).runs_code:
        yield from _recipe_inputs(spec, index, stage)
        return
    roles = inputs_of(stage.kind, stage.parameters)
    meant: set[str] = set()
    for role, reference in stage.inputs.items():
        loc: Loc = ("inputs", role)
        read_as = role
        if role not in roles:
            read_as = closest(role, [name for name in roles if name not in stage.inputs]) or ""
            meant.add(read_as)
            yield LintProblem(loc, f"{stage.kind} has no input '{role}'", suggest(role, roles, "it reads"))
        if reference == "heldout" and not kind_of(stage).reads_heldout:
            yield LintProblem(loc, f"the held-out split is not for {stage.kind} stages", _heldout_readers())
        elif read_as:
            yield from _reference(spec, index, loc, reference, roles[read_as])
    for role in roles:
        # A misspelt role is one mistake, not two.
        if role not in stage.inputs and role not in meant:
            message = f"input '{role}' is missing: {stage.kind} reads {' and '.join(roles)}"
            yield LintProblem(("inputs", role), message, _candidates(spec, index, roles[role]))


def _heldout_readers() -> str:
    return f"only {', '.join(names_where('reads_heldout'))} stages may read it"


def lint_samples(spec: SessionSpec, index: int, stage: Stage) -> Iterator[LintProblem]:
    """Pairs are made of the samples of a ``generate`` stage, and judged against its own prompts."""
    reference = stage.inputs.get("samples", "")
    owner = next((one for one in spec.stages if one.name == reference.partition(".")[0]), None)
    if not kind_of(stage).pairs_samples or owner is None or not reference.endswith(".rows"):
        return  # The rule on inputs reports a reference to nothing, or to something else than rows.
    if not kind_of(owner).sampled_by_task:
        able = [f"{one.name}.rows" for one in spec.stages[:index] if kind_of(one).sampled_by_task]
        message = f"'{reference}' are rows of a stage of kind {owner.kind}, pairs are made of those of generate"
        hint = f"there are {', '.join(able)}" if able else "no generate stage comes before it"
        yield LintProblem(("inputs", "samples"), message, hint)
    elif stage.inputs.get("prompts") not in (None, owner.inputs.get("prompts")):
        message = f"prompts are '{stage.inputs['prompts']}', the samples are of '{owner.inputs.get('prompts')}'"
        yield LintProblem(("inputs", "prompts"), message, "name the prompts of the samples")


def _recipe_inputs(spec: SessionSpec, index: int, stage: Stage) -> Iterator[LintProblem]:
    """A recipe reads any artifact under any name, but nothing that holds or answers held-out items."""
    for role, reference in stage.inputs.items():
        loc: Loc = ("inputs", role)
        if not _ROLE.fullmatch(role):
            yield LintProblem(loc, f"'{role}' cannot be the name of an input", "lower-case letters, digits and '_'")
        if reference == "heldout":
            yield LintProblem(loc, "the held-out split is not for recipe stages", _heldout_readers())
        elif _tells_heldout(spec, index, reference):
            message = f"'{reference}' holds answers to held-out items, which no script may read"
            yield LintProblem(loc, message, "Peergate measures their sums")
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


def lint_trained(spec: SessionSpec, index: int, stage: Stage) -> Iterator[LintProblem]:
    """A recipe that trains names one of its own inputs, a checkpoint."""
    role = stage.parameters.trains if kind_of(stage).runs_code else None
    if role is None:
        return
    loc: Loc = ("parameters", "trains")
    if role not in stage.inputs:
        hint = suggest(role, stage.inputs, "its inputs are")
        yield LintProblem(loc, f"the stage has no input '{role}' to train", hint)
        return
    needed = list(_reference(spec, index, loc, stage.inputs[role], "checkpoint"))
    # The rule on inputs reports a wrong reference.
    if needed and not list(_reference(spec, index, loc, stage.inputs[role], None)):
        message = f"trains '{role}', and '{stage.inputs[role]}' is no checkpoint"
        yield LintProblem(loc, message, _candidates(spec, index, "checkpoint"))


def lint_witness(_: SessionSpec, __: int, stage: Stage) -> Iterator[LintProblem]:
    """Training that no witness can repeat is registered as such, by the person and before it starts."""
    kind, loc = kind_of(stage), ("witness",)
    trains = kind.makes_weights(stage.parameters)
    if stage.witness and (kind.replayed or not trains):
        told = "a witness can repeat its training" if trains else "the stage trains nothing"
        yield LintProblem(loc, told, "remove the line")
    elif trains and not stage.witness and not kind.replayed:
        message = f"no witness can repeat the training of a {kind.name} stage"
        yield LintProblem(loc, message, "write witness: weights_only; the headline then says 'training not replayed'")


def lint_code(spec: SessionSpec, index: int, stage: Stage) -> Iterator[LintProblem]:
    """Code of a builder is allowed by name, where it cannot reach held-out items, and only if somebody can write it."""
    kind = kind_of(stage)
    if kind.takes_script:
        yield from _person_script(spec, stage)
    if not kind.runs_code:
        if stage.script and not kind.takes_script:
            yield LintProblem(("script",), f"{stage.kind} runs Peergate's own code", "a recipe stage runs a script")
        if stage.allow_code:
            heldout = kind.reads_heldout
            why = "reads held-out items" if heldout else "is judged by what Peergate's own code reads back"
            message = f"{stage.kind} {why}: it runs no code of a builder"
            yield LintProblem(("allow_code",), message, "remove the line; a recipe stage runs code")
        return
    if stage.script and stage.allow_code:
        message = "the stage has a script, so the builder hands none in"
        yield LintProblem(("allow_code",), message, "remove this line or the script")
    if stage.script:
        return
    if not stage.allow_code:
        message = "a recipe runs code that the builder hands in, and the stage does not allow it"
        yield LintProblem(("allow_code",), message, "write allow_code: true, or name your own: script: FILE.py")
    if stage.parameters.code is not None:
        message = "the builder hands in the code of a recipe; a spec does not register it"
        yield LintProblem(("parameters", "code"), message, "remove the line")
    if spec.builder.vendor == "playbook":
        message = "'playbook' writes no code, so this stage could never start"
        yield LintProblem(("kind",), message, "name a builder that asks a model")


def _person_script(spec: SessionSpec, stage: Stage) -> Iterator[LintProblem]:
    """A task is in a script or in a package, not in both; stages that are compared run the same one."""
    in_package, form = "/" in stage.parameters.task, ".yaml" if kind_of(stage).environment == "lm_eval" else ".py"
    if stage.script and (form == ".yaml") is not is_task_file(path_of(stage.script)):
        library = "lm-eval" if form == ".yaml" else "inspect_ai"
        message = f"a task of {library} is in a file that ends in {form}"
        yield LintProblem(("script",), message, "kind: inspect runs Python files, kind: lm_eval YAML files")
    if in_package and stage.script:
        message = f"'{stage.parameters.task}' is a task of a package, and the stage has a script too"
        yield LintProblem(("script",), message, "remove this line, or name the task alone")
    elif not in_package and not stage.script:
        message = f"nothing says where the task '{stage.parameters.task}' is"
        yield LintProblem(
            ("parameters", "task"),
            message,
            f"write script: FILE{form}" + (", or the task as package/task" if form == ".py" else ""),
        )
    if stage.parameters.code is not None and not stage.script:
        yield LintProblem(("parameters", "code"), "the digest is that of the stage's script", "remove the line")


def _reference(
    spec: SessionSpec, index: int, loc: Loc, reference: str, needed: ArtifactKind | None
) -> Iterator[LintProblem]:
    """Check that a reference resolves to an earlier artifact, and of the right kind where one is needed."""
    found = _resolved(spec, index, loc, reference)
    if isinstance(found, LintProblem):
        yield found
    elif needed is not None and found != needed:
        yield LintProblem(loc, f"needs {_a(needed)}, '{reference}' is {_a(found)}", _candidates(spec, index, needed))


def held_by(spec: SessionSpec, index: int, reference: str) -> ArtifactKind | None:
    """Return the artifact kind that a stage's reference names; None where the rule on inputs reports it."""
    found = _resolved(spec, index, (), reference)
    return None if isinstance(found, LintProblem) else found


def _resolved(spec: SessionSpec, index: int, loc: Loc, reference: str) -> ArtifactKind | LintProblem:
    names = [stage.name for stage in spec.stages]
    head, _, tail = reference.partition(".")
    if reference == "control" and spec.control is None:
        return LintProblem(loc, "the spec names no control", "write control: {source: ..., kind: instruct}")
    if reference == "constitution" and spec.constitution is None:
        return LintProblem(
            loc, "the spec names no constitution", "write constitution: FILE.yaml at the top of the spec"
        )
    if head == "data" and tail not in spec.data:
        return LintProblem(loc, f"there is no data file '{tail}'", suggest(tail, spec.data, "data files"))
    if head == "data":
        return _HELD[spec.data[tail].held or "items"]
    if (own := _OWN.get(reference)) is not None:
        return own
    if head not in names:
        hint = suggest(head, names[:index], "stages before it")
        return LintProblem(loc, f"'{reference}' names the unknown stage '{head}'", hint)
    place = names.index(head)
    if place >= index:
        where = "the stage itself" if place == index else f"stages[{place}], which comes later"
        return LintProblem(loc, f"'{reference}' points to {where}", "inputs come from earlier stages")
    source = spec.stages[place]
    outputs = outputs_of(source.kind, source.parameters)
    if tail in outputs:
        return outputs[tail]
    hint = suggest(tail, outputs, "it leaves")
    if kind_of(source).runs_code and tail == "checkpoint":
        hint = "it leaves one where its parameters say trains: INPUT"
    return LintProblem(loc, f"stage '{head}' ({source.kind}) has no output '{tail}'", hint)


_HELD: dict[As, ArtifactKind] = {
    "items": "items",
    "texts": "items",
    "examples": "examples",
    "preferences": "preferences",
    "transcripts": "transcripts",
}
_OWN: dict[str, ArtifactKind] = {
    "model": "checkpoint",
    "control": "checkpoint",
    "heldout": "items",
    "constitution": "constitution",
}


def _candidates(spec: SessionSpec, index: int, needed: ArtifactKind) -> str:
    """List what could be an input of this artifact kind."""
    checkpoints = ["model", "control"] if spec.control else ["model"]
    constitution = [] if spec.constitution is None else ["constitution"]
    found = {"checkpoint": checkpoints, "constitution": constitution}.get(needed, [])
    found += [f"data.{name}" for name, one in spec.data.items() if _HELD[one.held or "items"] == needed]
    if needed == "items":
        found += ["heldout"] if kind_of(spec.stages[index]).reads_heldout else []
    for stage in spec.stages[:index]:
        outputs = outputs_of(stage.kind, stage.parameters)
        found += [f"{stage.name}.{out}" for out, kind in outputs.items() if kind == needed]
    if found:
        return f"{needed} here: {', '.join(found)}"
    own = f", and no data file holds them (`as: {needed}`)" if needed in _HELD else ""
    return f"no earlier stage leaves {needed}{own}"


def _a(kind: ArtifactKind) -> str:
    told = {"checkpoint": "a checkpoint", "files": "a folder of files", "constitution": "the constitution"}
    return told.get(kind, kind)


def lint_curated(spec: SessionSpec, index: int, stage: Stage) -> Iterator[LintProblem]:
    """A recipe that curates names one of its own inputs, of examples."""
    role = stage.parameters.curates if kind_of(stage).runs_code else None
    if role is None:
        return
    loc: Loc = ("parameters", "curates")
    if role not in stage.inputs:
        hint = suggest(role, stage.inputs, "its inputs are")
        yield LintProblem(loc, f"the stage has no input '{role}' to curate", hint)
        return
    needed = list(_reference(spec, index, loc, stage.inputs[role], "examples"))
    if needed and not list(_reference(spec, index, loc, stage.inputs[role], None)):
        message = f"curates '{role}', and '{stage.inputs[role]}' holds no examples"
        yield LintProblem(loc, message, _candidates(spec, index, "examples"))


def lint_ranges(spec: SessionSpec, _: int, stage: Stage) -> Iterator[LintProblem]:
    """Ranges are for numeric parameters, lie inside their limits and hold the stage's own value."""
    model = kind_of(stage).parameters
    numeric = numeric_parameters(model)
    arm = kind_of(stage).arm is not None and stage.name in spec.analysis.compared()
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
    arm = kind_of(stage).arm is not None and stage.name in spec.analysis.compared()
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
        elif wrong := [one for one in values if not _takes(stage, name, one)]:
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
    return {name: float if float in found else int for name, found in types.items() if found & {float, int}}


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
            said = error.errors(include_url=False)[0]["msg"].removeprefix("Input should be ")
            return f"{end} {value:g} is outside the limits of {name}: must be {said}"
    return ""


SIZES = frozenset(
    {
        *("target", "over_generation", "shards", "calls_per_round", "max_rounds", "abort_after"),
        *("max_instructions", "samples_per_instruction", "shard_size"),
        *("max_prompts", "samples_per_prompt", "samples", "max_examples", "revisions", "batch_size"),
    }
)
"""Parameters that say how much is written and how it is divided, not what one text is written like."""


def differing(ours: Mapping[str, Any], pilots: Mapping[str, Any]) -> list[str]:
    """Return the parameters, sizes left out, in which a stage differs from its pilot."""
    absent = object()
    names = sorted((ours.keys() | pilots.keys()) - SIZES)
    return [name for name in names if ours.get(name, absent) != pilots.get(name, absent)]


def lint_pilot(spec: SessionSpec, index: int, stage: Stage) -> Iterator[LintProblem]:
    """A stage that names a pilot does the same on more data, and must meet the rates that the pilot had to meet."""
    if stage.pilot is None:
        return
    order = [one.name for one in spec.stages]
    alike = [one.name for one in spec.stages[:index] if one.kind == stage.kind]
    if stage.pilot in alike:
        pilot = spec.stage(stage.pilot)
        yield from _same(stage, pilot)
        yield from _held(stage, pilot)
        return
    told = "comes later" if stage.pilot in order[index:] else "is no earlier stage"
    if stage.pilot in order[:index]:
        told = f"is of kind {spec.stage(stage.pilot).kind}"
    message = f"'{stage.pilot}' {told}; a pilot is an earlier stage of kind {stage.kind}"
    yield LintProblem(("pilot",), message, suggest(stage.pilot, alike, "there are"))


def _same(stage: Stage, pilot: Stage) -> Iterator[LintProblem]:
    """Inputs, parameters and ranges are those of the pilot; sizes may differ."""
    if stage.inputs != pilot.inputs:
        message = f"reads {dict(stage.inputs)}, its pilot '{pilot.name}' {dict(pilot.inputs)}"
        yield LintProblem(("inputs",), message, "what was tried is what is done")
    ours, theirs = stage.parameters.model_dump(mode="json"), pilot.parameters.model_dump(mode="json")
    for name in differing(ours, theirs):
        message = f"{name} is {ours.get(name)} here and {theirs.get(name)} at the pilot '{pilot.name}'"
        yield LintProblem(("parameters", name), message, "only sizes may differ")
    for name in differing(stage.ranges, pilot.ranges):
        message = f"the range of {name} is not that of the pilot '{pilot.name}'"
        yield LintProblem(("ranges",), message, "what may be moved there may be moved here")
    for name in differing(stage.choices, pilot.choices):
        message = f"the choices of {name} are not those of the pilot '{pilot.name}'"
        yield LintProblem(("choices",), message, "what may be chosen there may be chosen here")


def _held(stage: Stage, pilot: Stage) -> Iterator[LintProblem]:
    """Every criterion of the pilot on a rate is one of the stage too, or a stricter one is."""
    for criterion in pilot.gate.criteria:
        metric = METRICS.get(criterion.metric)
        if metric is None or metric.unit != "fraction" or any(_holds(one, criterion) for one in stage.gate.criteria):
            continue
        message = f"its pilot '{pilot.name}' must meet '{criterion}', and this stage need not"
        yield LintProblem(("gate",), message, "repeat the criterion, or write a stricter one")


def _holds(ours: Criterion, pilots: Criterion) -> bool:
    """Say whether what meets the first criterion meets the other one."""
    if ours.metric != pilots.metric:
        return False
    try:
        (sign, value), (asked, limit) = ours.bound(), pilots.bound()
    except ValueError:  # Told as a criterion without one bound.
        return True
    if sign[0] != asked[0]:
        return False
    stricter = value > limit if sign[0] == ">" else value < limit
    return stricter or (value == limit and (sign == asked or "=" in asked))
