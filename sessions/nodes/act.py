"""The nodes that act: open, plan, build, launch, wait, close. Each records its effect, so it may repeat."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reviews.gate import grants
from reviews.gate.human_answers import BY_PEOPLE, overrides
from reviews.trail.envelope import Recorded
from reviews.trail.store import write_durably
from sessions.builder.stage_view import open_stage
from sessions.jobs import orphans
from sessions.jobs.job_state import POLL_S
from sessions.jobs.launcher import JobState, job_folder, submit
from sessions.jobs.sandbox.code_admission import keep_files
from sessions.jobs.untrusted_files import NotReadable, is_own_file, open_file
from sessions.money import ledger
from sessions.money.estimate import snapshot_bytes
from sessions.nodes.build import watch_over, work_through
from sessions.nodes.heldout_use import used_elsewhere
from sessions.nodes.job_order import current_attempt, ensure_model, order_of, resolve_input, resumed
from sessions.report import report
from sessions.session import Session, State
from specs.digests import digest_path, list_tree
from specs.errors import PeergateError
from specs.job_records import JobOrder, Manifest, Observed, Progress
from specs.masking import current
from specs.resources import attempt_usd, held_hours
from specs.stages.recipes.parameters import RecipeParameters
from specs.stages.registry import Stage, outputs_of
from specs.stages.stage import FOLDERS
from specs.strict_json import read_json

CANCEL_WAIT_S = 30.0
MANIFEST_BYTES = 1 << 26
RESTART_S = 30.0
"""A launched job that is unclaimed for this long is started again; its claim keeps that harmless."""
FIRST_TOLD_S, LATER_TOLD_S = 60.0, 1800.0
"""When the session first says that a job has not begun, and how often after that."""


def open_session(session: Session, state: State) -> State:
    """Make sure that the trail holds the registration, which is written before the graph runs."""
    if session.trail.find("open") is None:
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
    recorded = session.trail.find(f"plan/{stage.name}.{attempt}")
    if recorded is None:
        wish = work_through(session, stage, attempt)
        body = {"stage": stage.name, "attempt": attempt, "builder": session.builder.name} | asdict(wish)
        recorded = session.trail.append("plan", f"plan/{stage.name}.{attempt}", body)
    if recorded.body["changes"]:
        session.display.say(f"{stage.name}: {recorded.body['reason']}")
    return {"stage": stage.name, "attempt": attempt, "route": "human" if recorded.body["escalate"] else "go"}


def build(session: Session, state: State) -> State:
    """Pin inputs and parameters and mint the grant that binds them."""
    stage, attempt, _ = current_attempt(session, state)
    grants.mint(
        session.trail,
        session.resolved,
        changes=session.body(f"plan/{stage.name}.{attempt}")["changes"],
        inputs={role: resolve_input(session, named).digest for role, named in sorted(stage.inputs.items())},
        model=session.body("model")["digest"],
        price_cap_usd=attempt_usd(session.resolved.spec.budget, stage),
    )
    session.store.put_value(order_of(session, state))
    return {"route": "go"}


def launch(session: Session, state: State) -> State:
    """Reserve the money, then hand the job to the launcher, which checks the grant again."""
    stage, _, key = current_attempt(session, state)
    folder = job_folder(session.run, key)
    if session.trail.find(f"launch/{key}") is not None and (
        (folder / "claim").exists() or (folder / "exit.json").exists()
    ):
        # It has begun. Otherwise a kill may have come between the entry and the start, and everything is repeated.
        session.on_launch(key)
        return {"route": "go"}
    order = resumed(session, order_of(session, state))
    session.store.put_value(order)
    budget = session.resolved.spec.budget
    rated = budget.storage_usd_per_gb is not None or budget.max_disk_gb is not None
    keeps = _expected_bytes(session, stage, order) if rated else 0
    ledger.reserve_job(session.trail, budget, stage, key, keeps)
    submit(session.launcher, session.trail, session.run, order, session.resolved.registration())
    session.on_launch(key)
    return {"route": "go"}


def _expected_bytes(session: Session, stage: Stage, order: JobOrder) -> int:
    """Return the expected size of a job's outputs: a checkpoint as large as the one before it, and snapshots."""
    trains = stage.parameters.trains if isinstance(stage.parameters, RecipeParameters) else None
    model = order.inputs.get(trains or "model")
    if model is None or "checkpoint" not in outputs_of(stage.kind, stage.parameters).values():
        return 0
    weights = sum(one.stat().st_size for one in (session.run / model.path).rglob("*") if one.is_file())
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
    seen, alive = 0, list[float]()
    waits = since = time.monotonic()
    tell_at = waits + FIRST_TOLD_S
    while True:
        seen = _show_progress(session, name, folder / "progress.jsonl", seen)
        job = session.launcher.poll(folder)
        if job.state in ("exited", "lost"):
            break
        if job.is_here:
            alive = [*alive[:1], time.monotonic()]
        if job.state == "pending":
            if time.monotonic() > tell_at:
                minutes, told = (time.monotonic() - waits) / 60, f": {job.told}" if job.told else ""
                session.display.say(f"{name}: job {folder.name} has not begun for {minutes:.0f} min{told}")
                tell_at = time.monotonic() + LATER_TOLD_S
            if time.monotonic() - since > RESTART_S:
                session.launcher.start(folder)
                since = time.monotonic()
        session.checkpoint()
        time.sleep(POLL_S)
    return job, alive[-1] - alive[0] if alive else 0.0


def record_end(session: Session, stage: Stage, attempt: int, key: str, job: JobState, alive_s: float = 0.0) -> None:
    """Record the end of a job seen alive here for ``alive_s``, and keep its files; those of a lost one do not count."""
    folder = job_folder(session.run, key)
    budget = session.resolved.spec.budget
    common = {"key": key, "stage": stage.name, "attempt": attempt}
    if job.exit is None:
        # Before a decision can open the next attempt, whose memory and files a running process would touch.
        orphans.end_left_behind(folder)
        session.trail.append("lost", f"lost/{key}", common | ({"why": job.told} if job.told else {}))
        # The cost is unknown, so the whole reservation counts as spent.
        ledger.settle_job(session.trail, budget, key, held_hours(stage) * 3600)
        ledger.settle_storage(session.trail, budget, key, None)
        why = job.told or "its process is gone and left no exit record"
        session.display.job_ended(stage.name, f"{key} is lost: {why}")
        return
    observed = observed_from(session.trail.find(f"launch/{key}"), alive_s)
    manifest, outputs = _keep_outputs(session, stage, folder)
    body: dict[str, Any] = common | {
        "exit": session.store.put_value(job.exit),
        "manifest": manifest,
        "outputs": outputs,
        "log": session.store.put(log_of(session, stage, folder)),
        "observed": observed.model_dump(mode="json"),
    }
    if (used := used_elsewhere(session, stage)) is not None:
        body["heldout"] = used.model_dump(mode="json")
    # After a crash the first body counts, with the time that was observed then.
    body = session.trail.append("exit", f"exit/{key}", body).body
    observed = Observed.model_validate(body["observed"])
    seconds = observed.bounded(job.exit.seconds)
    if not observed.fits(job.exit.seconds):
        said = f"states {job.exit.seconds:.6g} s, {seconds:.0f} s are paid for, as observed"
        session.display.say(f"{stage.name}: the exit record of job {key} {said}")
    ledger.settle_job(session.trail, budget, key, seconds, observed.at_least_s)
    ledger.settle_storage(session.trail, budget, key, sum(one["bytes"] for one in outputs.values()))
    ended = "done" if job.exit.code == 0 else f"ended with code {job.exit.code} ({job.exit.reason})"
    where = "" if job.exit.code == 0 else f"; why is in its log: {session.run / 'jobs' / key / 'log.txt'}"
    session.display.job_ended(stage.name, f"job {key} {ended} after {seconds:.0f} s{where}")


def observed_from(launch: Recorded | None, alive_s: float) -> Observed:
    """Return how long a job can have run: from its launch, under any orchestrator, until now."""
    since = time.time() - int(launch.entry.time_ns) / 1e9 if launch else alive_s
    return Observed(at_least_s=round(alive_s, 3), at_most_s=round(max(since, alive_s), 3))


def end_jobs(session: Session, launches: Sequence[Recorded], why: str) -> None:
    """End the launched jobs that still run, and record how they ended."""
    for launch in launches:
        key, stage = launch.body["key"], session.resolved.spec.stage(launch.body["stage"])
        if session.trail.find(f"exit/{key}") or session.trail.find(f"lost/{key}"):
            continue
        record_end(session, stage, launch.body["attempt"], key, cancelled(session, job_folder(session.run, key), why))


def cancelled(session: Session, folder: Path, why: str) -> JobState:
    """Ask a job to end, wait a while, and return its state."""
    session.launcher.cancel(folder, why)
    deadline = time.monotonic() + CANCEL_WAIT_S
    state = session.launcher.poll(folder)
    while state.state == "running" and time.monotonic() < deadline:
        time.sleep(0.2)
        state = session.launcher.poll(folder)
    return state


def _keep_outputs(session: Session, stage: Stage, folder: Path) -> tuple[str | None, dict[str, Any]]:
    """Digest the job's outputs; row files also go into the store, weights stay where they are."""
    outputs: dict[str, Any] = {}
    raw = manifest_of(session, stage, folder / "manifest.json")
    if raw is None:
        return None, outputs
    for name, kind in outputs_of(stage.kind, stage.parameters).items():
        path = folder / "out" / (name if kind in FOLDERS else f"{name}.jsonl")
        if path.is_symlink() or not path.exists():
            continue
        stored = not path.is_dir()
        if stored and not is_own_file(path):
            _uncounted(session, stage, name, "is a link or no regular file")
            continue
        if (stored or kind == "files") and (named := _known_in(path)):
            # Evidence is kept unchanged or not at all: its digest and the metrics belong to these bytes.
            _uncounted(session, stage, name, f"holds the value of {named}")
            continue
        if kind == "files":
            digest = keep_files(session.store, path)
        else:
            digest = session.store.put(path.read_bytes()) if stored else digest_path(path)
        size = path.stat().st_size if stored else sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
        relative = path.relative_to(session.run).as_posix()
        outputs[name] = {"path": relative, "digest": digest, "bytes": size, "stored": stored}
    return session.store.put(raw), outputs


def manifest_of(session: Session, stage: Stage, path: Path) -> bytes | None:
    """Return the job's manifest; None if it is missing, malformed or holds a secret."""
    if not is_own_file(path):
        return None
    with path.open("rb") as handle:
        raw = handle.read(MANIFEST_BYTES + 1)
    if named := current().known_in(raw):
        return _uncounted(session, stage, "manifest", f"holds the value of {named}")
    try:
        read_json(raw, MANIFEST_BYTES)
        Manifest.model_validate_json(raw)
    except ValueError:
        return _uncounted(session, stage, "manifest", "does not have the manifest's form")
    return raw


def _uncounted(session: Session, stage: Stage, name: str, why: str) -> None:
    session.display.say(f"{stage.name}: the job's output '{name}' {why}; it does not count")


def _known_in(path: Path) -> str | None:
    """Return the name of a secret of this process that an output holds; None if it holds none."""
    files = [path] if path.is_file() else list_tree(path)
    return next((named for one in files if (named := current().known_in(one.read_bytes()))), None)


def log_of(session: Session, stage: Stage, folder: Path) -> bytes:
    """Return the job's log without secrets; empty if the job left no regular file."""
    try:
        with open_file(folder / "log.txt") as handle:
            log = handle.read()
        if (masked := current().data(log)) != log:
            # In the run folder too, which people copy and pass on.
            write_durably(folder / "log.txt", masked)
        return masked
    except NotReadable as error:
        session.display.say(f"{stage.name}: the job has no log: {error}")
        return b""


def close(session: Session, state: State) -> State:
    """Write the report and close the trail with the session's result."""
    close_with(session, state.get("outcome", "escalate"))
    return {"route": "close"}


def close_with(session: Session, outcome: str) -> None:
    """Record the report and the end of the session."""
    recorded = session.trail.find("report")
    if recorded is None:
        # The files precede the entry, and must not overwrite those of a process that took the session over.
        session.trail.guard()
        if outcome == "approve" and overrides(list(session.trail.iterate(*BY_PEOPLE))):
            outcome = "overridden"
        written = report.write(session.run, session.trail.path.name, session.store.root.name, outcome)
        recorded = session.trail.append("report", "report", written)
    session.trail.append("close", "close", {"decision": recorded.body["outcome"], "report": recorded.digest})


def _show_progress(session: Session, stage: str, path: Path, seen: int) -> int:
    """Show the newest complete line of the progress file; return how many bytes were read."""
    try:
        with open_file(path) as handle:
            handle.seek(seen)
            new = handle.read()
    except OSError:
        return seen
    complete, newline, _ = new.rpartition(b"\n")
    if newline:
        try:
            session.display.progress(stage, Progress.model_validate(read_json(complete.splitlines()[-1])))
        except ValueError:
            session.display.say(f"{stage}: an unreadable progress line was skipped")
    return seen + len(complete) + len(newline)
