"""Rules on a stage's name and on what it reads. Places are keys of the stage."""

from __future__ import annotations

import re
from collections.abc import Iterator

from specs.session.session_spec import SessionSpec
from specs.stages.base.artifacts import As
from specs.stages.base.stage import ArtifactKind
from specs.stages.registry import Stage, inputs_of, kind_of, names_where, outputs_of
from specs.system.yaml.problems import LintProblem, Loc, closest, suggest

RESERVED = ("model", "control", "heldout", "data", "constitution")
"""Words that already mean something where a stage is referred to."""

_CONSTITUTIONAL = re.compile(r"(?:^|[_.-])(?:cai|constitution(?:al)?)(?=$|[_.\-\d])", re.IGNORECASE)
_ROLE = re.compile(r"[a-z][a-z0-9_]{0,39}")


def lint_name(spec: SessionSpec, index: int, stage: Stage) -> Iterator[LintProblem]:
    """Stage names are unique and not reserved."""
    first = [stage.name for stage in spec.stages].index(stage.name)
    if stage.name in RESERVED:
        yield LintProblem(("name",), f"'{stage.name}' is reserved for references to inputs", "choose another name")
    elif first < index:
        yield LintProblem(("name",), f"the name is already used by stages[{first}]", "stage names are unique")


def lint_constitution_claims(spec: SessionSpec) -> Iterator[LintProblem]:
    """A session or stage is named after a constitution only if a stage reads one: reviewers alone change no result."""
    if spec.list_constitution_readers():
        return
    named: list[tuple[Loc, str]] = [(("name",), spec.name)]
    named += [(("stages", number, "name"), stage.name) for number, stage in enumerate(spec.stages)]
    for loc, name in named:
        if _CONSTITUTIONAL.search(name):
            message = f"'{name}' is named after a constitution, and no stage reads one"
            yield LintProblem(loc, message, "add a stage with inputs: {constitution: constitution}, or rename it")


def lint_inputs(spec: SessionSpec, index: int, stage: Stage) -> Iterator[LintProblem]:
    """Roles are complete and known; references resolve to an earlier artifact of the right kind."""
    if kind_of(stage).runs_code:
        yield from _recipe_inputs(spec, index, stage)
        return
    roles = inputs_of(stage.kind, stage.parameters)
    texts: set[str] = set()
    for role, reference in stage.inputs.items():
        loc: Loc = ("inputs", role)
        read_as = role
        if role not in roles:
            read_as = closest(role, [name for name in roles if name not in stage.inputs]) or ""
            texts.add(read_as)
            yield LintProblem(loc, f"{stage.kind} has no input '{role}'", suggest(role, roles, "it reads"))
        if reference == "heldout" and not kind_of(stage).reads_heldout:
            yield LintProblem(loc, f"the held-out split is not for {stage.kind} stages", _heldout_readers())
        elif read_as:
            yield from _reference(spec, index, loc, reference, roles[read_as])
    for role in roles:
        # A misspelt role is one mistake, not two.
        if role not in stage.inputs and role not in texts:
            message = f"input '{role}' is missing: {stage.kind} reads {' and '.join(roles)}"
            yield LintProblem(("inputs", role), message, _candidates(spec, index, roles[role]))


def _heldout_readers() -> str:
    return f"only {', '.join(names_where('reads_heldout'))} stages may read it"


def lint_samples(spec: SessionSpec, index: int, stage: Stage) -> Iterator[LintProblem]:
    """Pairs are made of the samples of a ``generate`` stage, and judged against its own prompts."""
    reference = stage.inputs.get("samples", "")
    owner = next((stage for stage in spec.stages if stage.name == reference.partition(".")[0]), None)
    if not kind_of(stage).pairs_samples or owner is None or not reference.endswith(".rows"):
        return  # The rule on inputs reports a reference to nothing, or to something else than rows.
    if not kind_of(owner).sampled_by_task:
        able = [f"{stage.name}.rows" for stage in spec.stages[:index] if kind_of(stage).sampled_by_task]
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
        elif _reveals_heldout(spec, index, reference):
            message = f"'{reference}' holds answers to held-out items, which no script may read"
            yield LintProblem(loc, message, "Peergate measures their sums")
        else:
            yield from _reference(spec, index, loc, reference, None)


def _reveals_heldout(spec: SessionSpec, index: int, reference: str) -> bool:
    """Return whether an artifact of an earlier stage was made from held-out items, at any remove.

    Weights are not text.
    """
    head, _, tail = reference.partition(".")
    place = next((number for number, stage in enumerate(spec.stages[:index]) if stage.name == head), None)
    if place is None:
        return False
    source = spec.stages[place]
    if outputs_of(source.kind, source.parameters).get(tail, "checkpoint") == "checkpoint":
        return False
    if spec.reads_split(source):
        return True
    return any(_reveals_heldout(spec, place, reference) for reference in source.inputs.values())


def lint_trained(spec: SessionSpec, index: int, stage: Stage) -> Iterator[LintProblem]:
    """A recipe that trains names a checkpoint among its inputs."""
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
        message = f"trains '{role}', but '{stage.inputs[role]}' is not a checkpoint"
        yield LintProblem(loc, message, _candidates(spec, index, "checkpoint"))


def lint_curated(spec: SessionSpec, index: int, stage: Stage) -> Iterator[LintProblem]:
    """A recipe that curates names an input of examples."""
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
        message = f"curates '{role}', but '{stage.inputs[role]}' holds no examples"
        yield LintProblem(loc, message, _candidates(spec, index, "examples"))


def _reference(
    spec: SessionSpec, index: int, loc: Loc, reference: str, needed: ArtifactKind | None
) -> Iterator[LintProblem]:
    """Check that a reference resolves to an earlier artifact, and of the right kind where one is needed."""
    result = _resolve_reference(spec, index, loc, reference)
    if isinstance(result, LintProblem):
        yield result
    elif needed is not None and result != needed:
        yield LintProblem(loc, f"needs {_a(needed)}, '{reference}' is {_a(result)}", _candidates(spec, index, needed))


def kind_of_reference(spec: SessionSpec, index: int, reference: str) -> ArtifactKind | None:
    """Return the artifact kind that a stage's reference names; None where the rule on inputs reports it."""
    result = _resolve_reference(spec, index, (), reference)
    return None if isinstance(result, LintProblem) else result


def _resolve_reference(spec: SessionSpec, index: int, loc: Loc, reference: str) -> ArtifactKind | LintProblem:
    names = [stage.name for stage in spec.stages]
    head, _, tail = reference.partition(".")
    if reference == "control" and spec.control is None:
        return LintProblem(loc, "the spec names no control", "write control: {source: ..., kind: instruct}")
    if reference == "constitution" and spec.constitution is None:
        return LintProblem(
            loc, "the spec names no constitution", "write constitution: FILE.yaml at the top of the spec"
        )
    if head == "data" and tail not in spec.data:
        return LintProblem(loc, f"unknown data file '{tail}'", suggest(tail, spec.data, "data files"))
    if head == "data":
        return _HELD[spec.data[tail].row_kind or "items"]
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
    texts = {"checkpoint": checkpoints, "constitution": constitution}.get(needed, [])
    texts += [f"data.{name}" for name, data_file in spec.data.items() if _HELD[data_file.row_kind or "items"] == needed]
    if needed == "items":
        texts += ["heldout"] if kind_of(spec.stages[index]).reads_heldout else []
    for stage in spec.stages[:index]:
        outputs = outputs_of(stage.kind, stage.parameters)
        texts += [f"{stage.name}.{out}" for out, kind in outputs.items() if kind == needed]
    if texts:
        return f"{needed} here: {', '.join(texts)}"
    own = f", and no data file holds them (`as: {needed}`)" if needed in _HELD else ""
    return f"no earlier stage leaves {needed}{own}"


def _a(kind: ArtifactKind) -> str:
    facts = {"checkpoint": "a checkpoint", "files": "a folder of files", "constitution": "the constitution"}
    return facts.get(kind, kind)
