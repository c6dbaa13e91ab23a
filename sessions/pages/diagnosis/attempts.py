"""What is left of the attempts of training stages: results of checks, curves, and of a job without an end its progress.

Of a recorded attempt everything comes from trail and store. What a job wrote on its way, without having ended, is its
own word and is marked so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from reviews.evidence.row_reader import read_rows
from reviews.history.attempt import Attempt
from reviews.history.history import History
from reviews.stages.finetuning.measure import by_step, loss_of
from reviews.trail.chain.store import Store
from sessions.jobs.untrusted_files import NotReadable, read_end
from specs.jobs.job_records import JobProgress
from specs.stages.finetuning.rows import ValidationRow
from specs.stages.registry import kind_of
from specs.system.errors import EvidenceMissing, PeergateError
from specs.trail.gate_bodies import PlanEntry
from specs.trail.session_bodies import JobOutput
from specs.trail.verdict import CheckResult

PROGRESS_BYTES = 4 << 20


class Curves(NamedTuple):
    """One point an optimizer step; what was not recorded is empty."""

    steps: tuple[int, ...] = ()
    losses: tuple[float, ...] = ()
    rates: tuple[float, ...] = ()
    norms: tuple[float, ...] = ()
    speeds: tuple[float, ...] = ()
    """Tokens with loss a second, of the last steps where the first ones were timed by an earlier attempt."""
    kept_out: tuple[tuple[int, float], ...] = ()
    """Steps and, after each, the loss on examples that were kept out of training."""
    stated: bool = False
    """Whether they are the job's own word: it has left no rows."""
    planned: int | None = None
    """Steps that the job was to make, where it says so."""


class TrainingAttempt(NamedTuple):
    """An attempt of a stage that trains."""

    stage: str
    attempt: int
    launched: bool
    ended: bool
    checks: tuple[CheckResult, ...]
    """The checks as recorded at the gate; empty without a gate."""
    curves: Curves
    granted_parameters: dict[str, Any]
    """The granted parameters; empty where the order is gone."""
    changes: dict[str, Any]
    """What the builder chose otherwise than the spec."""
    metrics: dict[str, Any]
    """Measured values by id."""


def newest_of(history: History) -> list[tuple[str, int]]:
    """Return the newest planned attempt of each stage that trains, in the order of the spec."""
    training = [stage.name for stage in history.resolved.spec.stages if kind_of(stage).trains]
    newest = {entry.body.stage: entry.body.attempt for entry in history.of(PlanEntry)}
    return [(name, newest[name]) for name in training if name in newest]


def attempt_of(history: History, stage: str, number: int, run: Path | None = None) -> TrainingAttempt:
    """Return what is known of an attempt; with ``run``, also what a job that has not ended wrote on its way."""
    attempt = history.attempt(stage, number)
    curves = _read_recorded_curves(history, attempt)
    if not curves.steps and run is not None:
        curves = _read_progress_curves(run / "jobs" / attempt.job / "progress.jsonl")
    metric_set = attempt.metric_set
    return TrainingAttempt(
        stage=stage,
        attempt=number,
        launched=attempt.launch is not None,
        ended=attempt.exit is not None,
        checks=attempt.check_results,
        curves=curves,
        granted_parameters=_read_granted_parameters(attempt),
        changes=attempt.plan.body.changes if attempt.plan else {},
        metrics={name: metric.value for name, metric in metric_set.metrics.items()} if metric_set else {},
    )


def _read_granted_parameters(attempt: Attempt) -> dict[str, Any]:
    try:
        return dict(attempt.order.parameters) if attempt.order else {}
    except PeergateError:
        return {}


def _read_recorded_curves(history: History, attempt: Attempt) -> Curves:
    outputs = attempt.exit.body.outputs if attempt.exit else {}
    if "rows" not in outputs:
        return Curves()
    rows: tuple[Any, ...] = ()
    # Rows that cannot be read were no evidence either, so they have no curve.
    with suppress(EvidenceMissing):
        path = history.store.path(outputs["rows"].digest)
        rows = read_rows(path, kind_of(history.resolved.spec.stage(attempt.stage)).rows["rows"], "steps")
    rows = tuple(row for row in rows if hasattr(row, "loss") and hasattr(row, "step"))
    if not rows:
        return Curves()
    seconds = _seconds(attempt, len(rows))
    timed = rows[len(rows) - len(seconds) :]
    return Curves(
        steps=tuple(row.step for row in rows),
        losses=tuple(row.loss for row in rows),
        rates=tuple(row.learning_rate for row in rows),
        norms=tuple(row.grad_norm for row in rows),
        speeds=tuple(row.tokens / second for row, second in zip(timed, seconds, strict=True)),
        kept_out=_kept_out(history.store, outputs),
    )


def _kept_out(store: Store, outputs: Mapping[str, JobOutput]) -> tuple[tuple[int, float], ...]:
    """Return the losses on kept examples; empty where none were kept, or their rows cannot be read."""
    if "validation" not in outputs:
        return ()
    with suppress(EvidenceMissing):
        points = by_step(read_rows(store.path(outputs["validation"].digest), ValidationRow, "scores of examples"))
        return tuple((step, loss) for step, rows in points.items() if math.isfinite(loss := loss_of(rows)))
    return ()


def _seconds(attempt: Attempt, count: int) -> list[float]:
    """Return the times of the last steps; empty where the job recorded none."""
    seconds: Any = None
    with suppress(ValidationError):
        seconds = attempt.manifest.facts.get("step_seconds") if attempt.manifest else None
    if not isinstance(seconds, list) or len(seconds) > count:
        return []
    times = [float(second) for second in seconds if isinstance(second, int | float) and 0 < second < math.inf]
    return times if len(times) == len(seconds) else []


def _read_progress_curves(path: Path) -> Curves:
    """Return the losses that a job without an end wrote on its way; lines that cannot be read are left out."""
    try:
        lines = read_end(path, PROGRESS_BYTES)[0].splitlines()
    except (NotReadable, OSError):
        return Curves()
    pairs: dict[int, tuple[float, float]] = {}
    planned: int | None = None
    for line in lines:
        with suppress(ValueError, TypeError):
            job_progress = JobProgress.model_validate(json.loads(line))
            loss = job_progress.note.get("loss")
            if isinstance(loss, float) and math.isfinite(loss):
                pairs[job_progress.done], planned = (loss, job_progress.time), job_progress.total
    steps = sorted(pairs)
    return Curves(tuple(steps), tuple(pairs[step][0] for step in steps), stated=True, planned=planned)
