"""Rules on the code a stage runs: a builder's, a person's script, or a training that no witness can repeat."""

from __future__ import annotations

from collections.abc import Iterator

from specs.benchmarks.lm_eval_file import is_task_file
from specs.session.session_spec import SessionSpec
from specs.stages.recipes.script_file import path_of
from specs.stages.registry import Stage, kind_of
from specs.system.yaml.problems import LintProblem


def lint_witness(_: SessionSpec, __: int, stage: Stage) -> Iterator[LintProblem]:
    """Training that no witness can repeat is registered as such, by the person and before it starts."""
    kind, loc = kind_of(stage), ("witness",)
    trains = kind.makes_weights(stage.parameters)
    if stage.witness and (kind.replay_job or not trains):
        sentence = "a witness can repeat its training" if trains else "the stage trains nothing"
        yield LintProblem(loc, sentence, "remove the line")
    elif trains and not stage.witness and not kind.replay_job:
        message = f"no witness can repeat the training of a {kind.name} stage"
        yield LintProblem(loc, message, "write witness: weights_only; the headline then says 'training not replayed'")


def lint_code(spec: SessionSpec, index: int, stage: Stage) -> Iterator[LintProblem]:
    """Code of a builder is allowed by name, where it cannot reach held-out items, and only if someone can write it."""
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
