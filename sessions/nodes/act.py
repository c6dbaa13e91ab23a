"""The nodes that act: open, plan, build, launch, wait, close. Each records its effect, so it may repeat."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

from reviews.gate import grants
from reviews.history.history import History
from reviews.history.people import overrides
from sessions.builder.stage_view import open_stage
from sessions.jobs.job_state import POLL_S
from sessions.jobs.launcher import JobState, job_folder, submit
from sessions.jobs.untrusted_files import open_file
from sessions.nodes.build import watch_over, work_through
from sessions.nodes.job_end import mask_log, record_end
from sessions.nodes.job_order import current_attempt, ensure_model, order_of, resolve_input, resolve_resume_step
from sessions.pages.report import report
from sessions.run.money import ledger
from sessions.run.money.estimate import snapshot_bytes
from sessions.session import Session, State
from specs.jobs.job_records import JobOrder, JobProgress
from specs.session.operations import attempt_usd
from specs.stages.recipes.parameters import RecipeParameters
from specs.stages.registry import Stage, outputs_of
from specs.system.errors import PeergateError
from specs.system.strict_json import read_json
from specs.trail.gate_bodies import PlanEntry
from specs.trail.session_bodies import ChallengeEntry, CloseEntry, LaunchEntry, ModelEntry, OpenEntry, ReportEntry

CANCEL_WAIT_S = 30.0
RESTART_S = 30.0
"""A launched job that is unclaimed for this long is started again; its claim keeps that harmless."""
FIRST_REPORT_S, NEXT_REPORT_S = 60.0, 1800.0
"""When the session first says that a job has not begun, and how often after that."""


def open_session(session: Session, state: State) -> State:
    """Make sure that the trail holds the registration, which is written before the graph runs."""
    if session.find(OpenEntry) is None:
        raise PeergateError("the session was never opened", where=session.name)
    return {"session": session.name, "route": "go"}


def plan(session: Session, state: State) -> State:
    """Show the builder the open stage and record its proposal."""
    opening = open_stage(session)
    spec, attempt = session.resolved.spec, opening.attempt
    stage = spec.stage(opening.stage)
    names = [item.name for item in spec.stages]
    session.display.stage(stage.name, attempt, names.index(stage.name) + 1, len(names))
    ensure_model(session)
    recorded = session.find(PlanEntry, stage.name, attempt)
    if recorded is None:
        launch = asdict(work_through(session, stage, attempt))
        body = PlanEntry(stage=stage.name, attempt=attempt, builder=session.builder.name, **launch)
        recorded = session.trail.append(body)
    if recorded.body.changes:
        session.display.say(f"{stage.name}: {recorded.body.reason}")
    return {"stage": stage.name, "attempt": attempt, "route": "human" if recorded.body.escalate else "go"}


def build(session: Session, state: State) -> State:
    """Pin inputs and parameters and mint the grant that binds them."""
    stage, attempt, _ = current_attempt(session, state)
    grants.mint(
        session.trail,
        session.resolved,
        changes=session.entry(PlanEntry, stage.name, attempt).changes,
        inputs={role: resolve_input(session, named).digest for role, named in sorted(stage.inputs.items())},
        model=session.entry(ModelEntry).digest,
        price_cap_usd=attempt_usd(session.resolved.spec.budget, stage),
    )
    return {"route": "go"}


def launch(session: Session, state: State) -> State:
    """Reserve the money, then hand the job to the launcher, which checks the grant again."""
    stage, _, key = current_attempt(session, state)
    folder = job_folder(session.run, key)
    if session.find(LaunchEntry, key) and ((folder / "claim").exists() or (folder / "exit.json").exists()):
        # It has begun. Otherwise a kill may have come between the entry and the start, and everything is repeated.
        session.on_launch(key)
        return {"route": "go"}
    order = resolve_resume_step(session, order_of(session, state))
    session.store.put_value(order)
    budget = session.resolved.spec.budget
    rated = budget.storage_usd_per_gb is not None or budget.max_disk_gb is not None
    keeps = _expected_bytes(session, stage, order) if rated else 0
    ledger.reserve_job(session.trail, budget, stage, key, keeps)
    launched = submit(session.launcher, session.trail, session.run, order, session.resolved.registration())
    report_prepared(session, launched.body)
    session.on_launch(key)
    return {"route": "go"}


def report_prepared(session: Session, launched: LaunchEntry | ChallengeEntry) -> None:
    """Print whether someone had written into the folder of a job or witness before it was launched."""
    if aside := launched.prepared:
        session.display.say(
            f"jobs/{launched.key} was not empty at launch; existing files were moved to jobs/{aside} and are ignored"
        )


def _expected_bytes(session: Session, stage: Stage, order: JobOrder) -> int:
    """Return the expected size of a job's outputs: a checkpoint as large as its predecessor, and snapshots."""
    trains = stage.parameters.trains if isinstance(stage.parameters, RecipeParameters) else None
    model = order.inputs.get(trains or "model")
    if model is None or "checkpoint" not in outputs_of(stage.kind, stage.parameters).values():
        return 0
    weights = sum(path.stat().st_size for path in (session.run / model.path).rglob("*") if path.is_file())
    return weights + snapshot_bytes(session.resolved, stage)


def wait(session: Session, state: State) -> State:
    """Watch the job, whether or not this process started it, and record how it ended."""
    stage, attempt, key = current_attempt(session, state)
    folder = job_folder(session.run, key)
    if session.launcher.poll(folder).state in ("pending", "running"):
        watch_over(session, stage, attempt)
    record_end(session, stage, attempt, key, *await_end(session, stage.name, folder))
    return {"route": "go"}


def await_end(session: Session, name: str, folder: Path) -> tuple[JobState, float]:
    """Show a job's progress until it has ended or is lost; return its state and how long it was seen alive here."""
    seen_values, alive = 0, list[float]()
    waits = since = time.monotonic()
    report_at = waits + FIRST_REPORT_S
    while True:
        seen_values = _show_progress(session, name, folder / "progress.jsonl", seen_values)
        job = session.launcher.poll(folder)
        if job.state in ("exited", "lost"):
            break
        if job.is_here:
            alive = [*alive[:1], time.monotonic()]
        if job.state == "pending":
            if time.monotonic() > report_at:
                minutes, message = (time.monotonic() - waits) / 60, f": {job.message}" if job.message else ""
                session.display.say(f"{name}: job {folder.name} has not begun for {minutes:.0f} min{message}")
                report_at = time.monotonic() + NEXT_REPORT_S
            if time.monotonic() - since > RESTART_S:
                session.launcher.start(folder)
                since = time.monotonic()
        session.checkpoint()
        time.sleep(POLL_S)
    return job, alive[-1] - alive[0] if alive else 0.0


def end_jobs(session: Session, history: History, why: str) -> None:
    """End the jobs that were launched in a part of the history and still run, and record how they ended."""
    for launch in (entry.body for entry in history.of(LaunchEntry)):
        attempt, folder = history.attempt(launch.stage, launch.attempt), job_folder(session.run, launch.key)
        if attempt.exit is not None:
            mask_log(folder, session.store.get(attempt.exit.body.log))
        elif attempt.lost is None:
            stage, job = session.resolved.spec.stage(launch.stage), cancel_job(session, folder, why)
            record_end(session, stage, launch.attempt, launch.key, job)


def cancel_job(session: Session, folder: Path, why: str) -> JobState:
    """Ask a job to end, wait a while, and return its state."""
    session.launcher.cancel(folder, why)
    deadline = time.monotonic() + CANCEL_WAIT_S
    state = session.launcher.poll(folder)
    while state.state == "running" and time.monotonic() < deadline:
        time.sleep(0.2)
        state = session.launcher.poll(folder)
    return state


def close(session: Session, state: State) -> State:
    """Write the report and close the trail with the session's result."""
    close_with(session, state.get("outcome", "escalate"))
    return {"route": "close"}


def close_with(session: Session, outcome: str) -> None:
    """Record the report and the end of the session."""
    recorded = session.find(ReportEntry)
    if recorded is None:
        # The files precede the entry, and must not overwrite those of a process that took the session over.
        session.trail.guard()
        if outcome == "approve" and overrides(session.history):
            outcome = "overridden"
        written = report.write(session.run, session.trail.path.name, session.store.root.name, outcome)
        recorded = session.trail.append(ReportEntry.model_validate(written))
    session.trail.append(CloseEntry(decision=recorded.body.outcome, report=recorded.digest))


def _show_progress(session: Session, stage: str, path: Path, seen_count: int) -> int:
    """Show the newest complete line of the progress file; return how many bytes were read."""
    try:
        with open_file(path) as handle:
            handle.seek(seen_count)
            new = handle.read()
    except OSError:
        return seen_count
    complete, newline, _ = new.rpartition(b"\n")
    if newline:
        try:
            session.display.progress(stage, JobProgress.model_validate(read_json(complete.splitlines()[-1])))
        except ValueError:
            session.display.say(f"{stage}: an unreadable progress line was skipped")
    return seen_count + len(complete) + len(newline)
