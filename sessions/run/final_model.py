"""The model that a session leaves: where it is, and a copy of it that is what the trail recorded."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from reviews.audit.pruning import pruned_weights
from reviews.evidence.weight_lineage import NAMED
from reviews.history.history import History
from reviews.trail.integrity import walk_trail
from reviews.trail.tables.open_table import read_trail
from sessions.run.run_history import read_history
from sessions.run.run_layout import TRAIL, require_run
from specs.session.session_spec import SessionSpec
from specs.stages.registry import Stage, kind_of, outputs_of
from specs.system.digests import digest_path, list_tree
from specs.system.errors import AuditDamage, EvidenceMissing, UserError
from specs.system.new_folder import new_folder
from specs.system.text import size_in_words
from specs.trail.gate_bodies import RetractionEntry
from specs.trail.session_bodies import CloseEntry, ExitEntry


class FinalModel(NamedTuple):
    """The checkpoint that a session packaged, or else that it trained and evaluated."""

    stage: str
    attempt: int
    path: str
    """From the run folder on."""
    digest: str
    bytes: int


def final_model(history: History, spec: SessionSpec) -> FinalModel | None:
    """Return the package of the weights that the registered treatment evaluated, or those weights; None without any."""
    evaluated = spec.stage(spec.analysis.treatment).inputs.get("model", "")
    packages = [
        f"{stage.name}.{output}"
        for stage in reversed(spec.stages)
        if (output := _find_package_output(stage, evaluated))
    ]
    for reference in (*packages, *(() if evaluated in NAMED else (evaluated,))):
        stage, _, output = reference.partition(".")
        if (model := _find_output(history, stage, output)) is not None:
            return model
    return None


def _find_package_output(stage: Stage, evaluated: str) -> str:
    """Return the name of the checkpoint that a stage makes of the evaluated one without training; empty if none."""
    kind = kind_of(stage)
    if kind.trains or kind.runs_code or evaluated not in stage.inputs.values():
        return ""
    outputs = outputs_of(stage.kind, stage.parameters)
    return next((name for name, what in outputs.items() if what == "checkpoint"), "")


def _find_output(history: History, stage: str, output: str) -> FinalModel | None:
    """Return what the accepted attempt of a stage left, or the newest attempt if none was accepted."""
    accepted = history.accepted_attempt(stage)
    if accepted is not None:
        ended = accepted.exit
    else:
        ended = next((entry for entry in reversed(history.of(ExitEntry)) if entry.body.stage == stage), None)
    remaining = ended.body.outputs.get(output) if ended is not None else None
    if ended is None or remaining is None:
        return None
    return FinalModel(stage, ended.body.attempt, remaining.path, remaining.digest, remaining.bytes)


def is_accepted(history: History) -> bool:
    """Return whether a session is closed as accepted, by its gates alone, and no one has taken that back since."""
    closed = history.find(CloseEntry)
    return closed is not None and closed.body.decision == "approve" and not history[closed.seq :].of(RetractionEntry)


def copy_model(run: Path, folder: Path, say: Callable[[str], None], *, unaccepted: bool = False) -> FinalModel:
    """Copy the model of a session into a new folder, and compare the copy with what the trail recorded.

    Raises:
        UserError: no such session, the folder exists, or the session is not accepted and ``unaccepted``
            was not asked for.
        EvidenceMissing: the session left no model, or it was pruned.
        AuditDamage: the trail does not hold together, or the weights differ from its record; nothing remains.
    """
    path = require_run(run) / TRAIL
    if walk_trail(read_trail(path)).damage:
        raise AuditDamage("a damaged trail cannot be copied from", where=str(run), hint=_AUDIT)
    history = read_history(run)
    if not unaccepted and not is_accepted(history):
        hint = "`peergate status` says why; --unaccepted copies its model all the same"
        raise UserError("the session is not accepted", where=str(run), hint=hint)
    model = final_model(history, history.resolved.spec)
    if model is None:
        raise EvidenceMissing("the session left no model", where=str(run), hint="no stage has trained or packaged one")
    weights = run / model.path
    _require_not_pruned(run, model)
    try:
        with new_folder(folder) as partial:
            say(f"copying {model.path} ({size_in_words(model.bytes)})")
            copied = _copy_checkpoint(weights, partial)
            if copied != model.digest:
                _require_not_pruned(run, model)
                message = f"{model.path} is {copied}, recorded as {model.digest}: nothing was copied"
                raise AuditDamage(message, where=str(run), hint=_AUDIT)
    except FileExistsError as error:
        raise UserError("already exists", where=str(folder), hint="name another folder") from error
    return model


def _require_not_pruned(run: Path, model: FinalModel) -> None:
    """Raise EvidenceMissing for weights that were pruned; it may have been a moment ago."""
    if not (run / model.path).exists() and model.path in pruned_weights(read_history(run)):
        hint = "only a copy from before has it; `peergate prune --keep STAGE` keeps the weights of a stage"
        raise EvidenceMissing(f"{model.path} was pruned", where=str(run), hint=hint)


_AUDIT = "`peergate audit verify` lists all damage"


def _copy_checkpoint(weights: Path, to: Path) -> str:
    """Copy the files of a checkpoint, not their modes, and return the digest of the copy, or what is wrong with it."""
    if weights.is_symlink() or not weights.is_dir():
        return "missing"
    try:
        for file in list_tree(weights):
            target = to / file.relative_to(weights)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
    except (ValueError, FileNotFoundError) as error:
        return f"unreadable ({error})"
    return digest_path(to)
