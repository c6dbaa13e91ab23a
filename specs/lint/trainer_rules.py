"""Which inputs of a stage a TRL or Axolotl file trains with: the model, the rows, and rows to evaluate on."""

from __future__ import annotations

from specs.lint.stage_rules import kind_of_reference
from specs.session.session_spec import SessionSpec
from specs.system.yaml.problems import LintProblem, Loc
from specs.trainers.trainer_file import TrainingInputs
from specs.trainers.trainer_keys import Held

TRAIN, EVAL = "train", "eval"
"""Roles of rows, where the stage has more than one input of them."""


def training_inputs(spec: SessionSpec, index: int) -> TrainingInputs | LintProblem:
    """Return what a stage gives to its training file, or what it lacks."""
    stage = spec.stages[index]
    at: Loc = ("stages", index)
    model = stage.parameters.trains
    if model is None:
        message = f"'{stage.script}' trains a model, and the stage does not say which"
        return LintProblem((*at, "parameters", "trains"), message, "write trains: INPUT, a checkpoint")
    current: dict[str, Held | None] = {role: _rows(spec, index, role) for role in stage.inputs if role != model}
    rows: dict[str, Held] = {role: value for role, value in current.items() if value is not None}
    only = [role for role in rows if role != EVAL]
    role = TRAIN if TRAIN in rows else only[0] if len(only) == 1 else ""
    if not role:
        message = f"'{stage.script}' needs rows to train on: examples, preferences or texts"
        hint = f"name them `{TRAIN}`, those to evaluate on `{EVAL}`" if rows else f"inputs: {{{TRAIN}: data.NAME, …}}"
        return LintProblem((*at, "inputs"), message, hint)
    others = sorted(set(rows) - {role, EVAL})
    if others:
        message = f"'{stage.script}' reads no input '{others[0]}'"
        return LintProblem((*at, "inputs", others[0]), message, f"rows are `{TRAIN}` and `{EVAL}`")
    if EVAL in rows and rows[EVAL] != rows[role]:
        message = f"holds {rows[EVAL]}, and '{role}' holds {rows[role]}"
        return LintProblem((*at, "inputs", EVAL), message, "both are of one kind")
    return TrainingInputs(model, role, rows[role], EVAL if EVAL in rows else None, stage.parameters.gpu)


def _rows(spec: SessionSpec, index: int, role: str) -> Held | None:
    reference = spec.stages[index].inputs[role]
    head, _, name = reference.partition(".")
    if head == "data" and name in spec.data and spec.data[name].row_kind == "texts":
        return "texts"
    kind = kind_of_reference(spec, index, reference)
    return kind if kind in ("examples", "preferences") else None
