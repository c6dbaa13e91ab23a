"""The formats of `peergate export FORMAT RUN...`, by name, and what each of them is given."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from reviews.history.history import History
from reviews.trail.integrity import walk_trail
from reviews.trail.tables.open_table import read_trail
from sessions.exports.source import ExportSource
from sessions.run.run_layout import STORE, TRAIL, require_run
from specs.system.errors import AuditDamage, EvidenceMissing, PeergateError, UserError
from specs.system.extras import install_hint
from specs.system.new_folder import new_folder


@dataclass(frozen=True)
class Format:
    """A format: what it is for, and the function that writes it, ``module:function``.

    The function gets the session and an empty folder, and returns one line for each file and for what it left out.
    That of a tracker gets a :class:`sessions.exports.tracked_run.TrackedRun`, a folder that may have earlier parts of
    it, and whether to send it.
    """

    description: str
    write: str
    tracks: bool = False
    sends: str = ""
    """For a tracker that can send a run: the variable that this requires."""
    adds: bool = False
    """For a tracker: whether its folder takes further parts of a run; other folders are rewritten."""
    several: bool = False
    """Whether its function gets a list of sessions."""

    def writer(self) -> Callable[..., Any]:
        """Return the function; only then is its module imported."""
        module, _, name = self.write.partition(":")
        return getattr(import_module(module), name)


FORMATS: Mapping[str, Format] = {
    "inspect": Format(
        "a log for each evaluation, for `inspect view` and `read_eval_log`", "sessions.exports.inspect_format:write"
    ),
    "tensorboard": Format(
        "metrics, curves and gates, for `tensorboard --logdir DIR`",
        "sessions.exports.tensorboard_format:write",
        tracks=True,
        adds=True,
    ),
    "wandb": Format(
        "the same as an offline run, for `wandb sync`",
        "sessions.exports.wandb_format:write",
        tracks=True,
        sends="WANDB_API_KEY",
    ),
    "mlflow": Format(
        "the same, for `mlflow ui --backend-store-uri DIR`",
        "sessions.exports.mlflow_format:write",
        tracks=True,
        sends="MLFLOW_TRACKING_URI",
        adds=True,
    ),
    "trackio": Format(
        "the same, for `TRACKIO_DIR=DIR trackio show`", "sessions.exports.trackio_format:write", tracks=True
    ),
    "paper": Format(
        "a paper in Markdown and LaTeX, with tables, figures, claims and what runs it again",
        "sessions.exports.paper.paper_format:write",
        several=True,
    ),
}


def export(name: str, runs: Sequence[Path], folder: Path) -> list[str]:
    """Write sessions in a format into a new folder; returns a line for each file and for each omission.

    Raises:
        UserError: there is no such format or session, its package is not installed, the folder already exists, or the
            format takes one session.
        AuditDamage: the trail, or a file that it recorded, is not what it was; nothing is left.
        EvidenceMissing: the session has nothing to write in this format.
    """
    sources = [_source(name, run) for run in runs]
    if len(runs) > 1 and not FORMATS[name].several:
        raise UserError(f"'{name}' takes one session, got {len(runs)}", hint="export them one after the other")
    try:
        with new_folder(folder) as partial:
            lines = _write_format(name, sources, partial)
            if not any(partial.iterdir()):
                why = "; ".join(lines) or "no stage that it supports has ended"
                raise EvidenceMissing(f"cannot export as '{name}': {why}", where=str(runs[0]))
    except FileExistsError as error:
        raise UserError("already exists", where=str(folder), hint="name another folder with --out") from error
    return lines


def send(name: str, run: Path) -> list[str]:
    """Add what a tracker's server lacks of a session; returns what was sent.

    Raises:
        UserError: nothing is sent in this format, its variable is not set, or as :func:`export`.
        AuditDamage: as :func:`export`.
        EvidenceMissing: nothing was measured yet, or the server rejected it.
    """
    source, form = _source(name, run), FORMATS[name]
    if not form.sends or not form.adds:
        raise UserError(
            f"format '{name}' cannot be sent", hint=f"without --send a folder is written, {form.description}"
        )
    if not os.environ.get(form.sends):
        raise UserError(f"variable {form.sends} is not set", hint="it names the server")
    with tempfile.TemporaryDirectory() as folder:
        try:
            return _write_format(name, [source], Path(folder), online=True)
        except (PeergateError, MemoryError):
            raise
        except Exception as error:
            # Whatever a library raises; its words may hold what it was given.
            raise EvidenceMissing(f"{name} rejected it: {type(error).__name__}", where=str(run)) from error


def _source(name: str, run: Path) -> ExportSource:
    if name not in FORMATS:
        raise UserError(f"unknown format '{name}'", hint=f"formats: {', '.join(FORMATS)}")
    path = require_run(run) / TRAIL
    if walk_trail(read_trail(path)).damage:
        hint = "`peergate audit verify` lists all damage"
        raise AuditDamage("a damaged trail cannot be exported", where=str(run), hint=hint)
    return ExportSource(run, History.read(path, run / STORE))


def _write_format(name: str, sources: Sequence[ExportSource], folder: Path, **how: bool) -> list[str]:
    form, source = FORMATS[name], sources[0]
    try:
        # Libraries print; what is on stdout is the command's own.
        with redirect_stdout(sys.stderr):
            if not form.tracks:
                return form.writer()(sources if form.several else source, folder)
            # Imported here: it imports all code of a gate.
            from sessions.exports.tracking import make_tracked_run

            run = make_tracked_run(source)
            form.writer()(run, folder, **how)
            return run.summarize()
    except ModuleNotFoundError as error:
        hint = install_hint(name)
        raise UserError(f"package '{error.name}' is not installed", hint=hint) from error
