"""The nodes that act: open, plan, build, launch, wait, close. The nodes that judge are in ``judge.py``.

Each is idempotent: what it did is an entry in the trail, and what counts afterwards is that entry.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reviews.evidence.gather import accepted_attempt
from reviews.evidence.heldout_screen import is_screened, screened
from reviews.gate import grants
from reviews.trail.envelope import Recorded
from reviews.trail.store import write_durably
from sessions.builder.stage_view import open_stage
from sessions.jobs import orphans
from sessions.jobs.job_state import POLL_S
from sessions.jobs.launcher import JobState, job_folder, submit
from sessions.jobs.sandbox.code_admission import keep_files
from sessions.jobs.untrusted_files import NotReadable, is_own_file, open_file
from sessions.money import ledger
from sessions.nodes.build import watch_over, work_through
from sessions.nodes.resume_point import with_takeover
from sessions.nodes.starting_weights import prepare_model
from sessions.report import report
from sessions.session import Session
from sessions.state import State
from specs.digests import digest_path, list_tree
from specs.errors import PeergateError
from specs.job_records import Artifact, JobOrder, Manifest, Observed, Progress
from specs.masking import current
from specs.resources import held_hours
from specs.session.model_kind import kind_in_order
from specs.session.session_spec import ModelSource
from specs.stages.recipes.parameters import RecipeParameters
from specs.stages.registry import Stage, outputs_of, resolve_parameters
from specs.stages.stage import FOLDERS
from specs.strict_json import read_json

CANCEL_WAIT_S = 30.0
MANIFEST_BYTES = 1 << 26
CONTROL = "model/control"
"""The key under which the second checkpoint of a session is recorded."""
RESTART_S = 30.0
"""A launched job nobody has claimed for this long is started again; its claim keeps that harmless."""
FIRST_TOLD_S, LATER_TOLD_S = 60.0, 1800.0
"""When it is said that a job has not begun, and how often after that."""


def open_session(session: Session, state: State) -> State:
    """Make sure the registration is in the trail. It was written before the graph ran at all."""
    if session.trail.find("open") is None:
        raise PeergateError("the session was never opened", where=session.name)
    return {"session": session.name, "route": "go"}


def plan(session: Session, state: State) -> State:
    """Show the builder the stage that is open and record what it proposes."""
    opening = open_stage(session)
    spec = session.resolved.spec
    stage = spec.stage(opening.stage)
    names = [item.name for item in spec.stages]
    session.display.stage(stage.name, opening.attempt, names.index(stage.name) + 1, len(names))
    ensure_model(session)
    recorded = session.trail.find(f"plan/{stage.name}.{opening.attempt}")
    if recorded is None:
        wish = work_through(session, stage, opening.attempt)
        body = {
            "stage": stage.name,
            "attempt": opening.attempt,
            "builder": session.builder.name,
            "changes": wish.changes,
            "reason": wish.reason,
            "escalate": wish.escalate,
            "answers": wish.answers,
        }
        recorded = session.trail.append("plan", f"plan/{stage.name}.{opening.attempt}", body)
    if recorded.body["changes"]:
        session.display.say(f"{stage.name}: {recorded.body['reason']}")
    route = "human" if recorded.body["escalate"] else "go"
    return {"stage": stage.name, "attempt": opening.attempt, "route": route}


def build(session: Session, state: State) -> State:
    """Pin inputs and parameters and mint the grant that binds them."""
    stage, attempt, _ = _current(session, state)
    changes = _body(session, f"plan/{stage.name}.{attempt}")["changes"]
    inputs = {role: resolve_input(session, reference) for role, reference in sorted(stage.inputs.items())}
    grants.mint(
        session.trail,
        session.resolved,
        changes=changes,
        inputs={role: artifact.digest for role, artifact in inputs.items()},
        model=_body(session, "model")["digest"],
        price_cap_usd=ledger.price_cap(session.resolved.spec.budget, stage),
    )
    session.store.put_value(_order(session, state))
    return {"route": "go"}


def launch(session: Session, state: State) -> State:
    """Reserve the money, then hand the job to the launcher, which checks the grant again."""
    stage, _, key = _current(session, state)
    folder = job_folder(session.run, key)
    if session.trail.find(f"launch/{key}") is not None and (
        (folder / "claim").exists() or (folder / "exit.json").exists()
    ):
        # It has begun. Before that a kill may have come between the entry and the start, and all is looked at again.
        return {"route": "go"}
    order = with_takeover(session, _order(session, state))
    session.store.put_value(order)
    budget = session.resolved.spec.budget
    keeps = _expected_bytes(session, stage, order) if budget.storage_usd_per_gb is not None else 0
    ledger.reserve_job(session.trail, budget, stage, key, keeps)
    submit(session.launcher, session.trail, session.run, order, session.resolved.registration())
    return {"route": "go"}


def _order(session: Session, state: State) -> JobOrder:
    """Rebuild the order from the recorded grant: the same bytes every time."""
    stage, attempt, key = _current(session, state)
    changes = _body(session, f"plan/{stage.name}.{attempt}")["changes"]
    return JobOrder.model_validate(
        {
            "key": key,
            "kind": stage.kind,
            "parameters": resolve_parameters(stage, changes).model_dump(mode="json"),
            "inputs": {role: resolve_input(session, reference) for role, reference in sorted(stage.inputs.items())},
            "task": session.resolved.spec.task,
            "grant": _body(session, f"grant/{key}"),
            "code": _running_code(session),
            "max_seconds": stage.max_minutes * 60,
            "dead_man_minutes": session.resolved.spec.budget.dead_man_minutes,
            "model_kind": kind_in_order(session.resolved.spec, stage),
        }
    )


def _running_code(session: Session) -> str:
    """Return the digest of the code that was stated when the session was opened or taken up last."""
    stated = [one.body.get("code_state") for one in session.trail.iterate("open", "resume")]
    return next(one["digest"] for one in reversed(stated) if one is not None)


def _expected_bytes(session: Session, stage: Stage, order: JobOrder) -> int:
    """Return how large what a job leaves is going to be: a checkpoint is as large as the one it is made from."""
    trains = stage.parameters.trains if isinstance(stage.parameters, RecipeParameters) else None
    model = order.inputs.get(trains or "model")
    if model is None or "checkpoint" not in outputs_of(stage.kind, stage.parameters).values():
        return 0
    return sum(one.stat().st_size for one in (session.run / model.path).rglob("*") if one.is_file())


def wait(session: Session, state: State) -> State:
    """Watch the job, whether or not this process started it, and record how it ended."""
    stage, attempt, key = _current(session, state)
    folder = job_folder(session.run, key)
    if session.launcher.poll(folder).state in ("pending", "running"):
        watch_over(session, stage, attempt)
    seen = 0
    waits = since = time.monotonic()
    alive: list[float] = []
    tell_at = waits + FIRST_TOLD_S
    while True:
        seen = _show_progress(session, stage.name, folder / "progress.jsonl", seen)
        job = session.launcher.poll(folder)
        if job.state in ("exited", "lost"):
            break
        if job.is_here:
            alive = [*alive[:1], time.monotonic()]
        if job.state == "pending" and time.monotonic() > tell_at:
            minutes, told = (time.monotonic() - waits) / 60, f": {job.told}" if job.told else ""
            session.display.say(f"{stage.name}: job {key} has not begun for {minutes:.0f} min{told}")
            tell_at = time.monotonic() + LATER_TOLD_S
        if job.state == "pending" and time.monotonic() - since > RESTART_S:
            session.launcher.start(folder)
            since = time.monotonic()
        session.checkpoint()
        time.sleep(POLL_S)
    record_end(session, stage, attempt, key, job, alive[-1] - alive[0] if alive else 0.0)
    return {"route": "go"}


def record_end(session: Session, stage: Stage, attempt: int, key: str, job: JobState, alive_s: float = 0.0) -> None:
    """Keep what the job left and record its end; a lost job leaves nothing that counts.

    Args:
        session: whose job it is.
        stage: what was attempted.
        attempt: its number.
        key: the job's.
        job: as it was found, exited or lost.
        alive_s: how long its process was seen alive on this machine.
    """
    folder = job_folder(session.run, key)
    budget = session.resolved.spec.budget
    common = {"key": key, "stage": stage.name, "attempt": attempt}
    if job.exit is None:
        # Before a decision can open the attempt after it: what still ran would hold its memory and write its files.
        orphans.end_left_behind(folder)
        session.trail.append("lost", f"lost/{key}", common | ({"why": job.told} if job.told else {}))
        # What it cost is unknown, so the whole reservation counts as spent.
        ledger.settle_job(session.trail, budget, key, held_hours(stage) * 3600)
        ledger.settle_storage(session.trail, budget, key, None)
        why = job.told or "its process is gone and left no exit record"
        session.display.job_ended(stage.name, f"{key} is lost: {why}")
        return
    observed = _observed(session, key, alive_s)
    manifest, outputs = _keep_outputs(session, stage, folder)
    body: dict[str, Any] = common | {
        "exit": session.store.put_value(job.exit),
        "manifest": manifest,
        "outputs": outputs,
        "log": session.store.put(_log(session, stage, folder)),
        "observed": observed.model_dump(mode="json"),
    }
    # Of a step that is repeated after a crash the first body counts, and what was observed then.
    body = session.trail.append("exit", f"exit/{key}", body).body
    observed = Observed.model_validate(body["observed"])
    seconds = observed.bounded(job.exit.seconds)
    if seconds != job.exit.seconds:
        said = f"states {job.exit.seconds:.6g} s, {seconds:.0f} s are paid for: that is what was seen of it"
        session.display.say(f"{stage.name}: the exit record of job {key} {said}")
    ledger.settle_job(session.trail, budget, key, seconds, observed.at_least_s)
    ledger.settle_storage(session.trail, budget, key, sum(one["bytes"] for one in outputs.values()))
    ended = "done" if job.exit.code == 0 else f"ended with code {job.exit.code} ({job.exit.reason})"
    session.display.job_ended(stage.name, f"job {key} {ended} after {seconds:.0f} s")


def _observed(session: Session, key: str, alive_s: float) -> Observed:
    """Return how long a job can have run: from its launch, whoever orchestrated then, until now."""
    launch = session.trail.find(f"launch/{key}")
    since = time.time() - int(launch.entry.time_ns) / 1e9 if launch else alive_s
    return Observed(at_least_s=round(alive_s, 3), at_most_s=round(max(since, alive_s), 3))


def end_jobs(session: Session, launches: Sequence[Recorded], why: str) -> None:
    """End those of the launched jobs that still run, and record how they ended."""
    for launch in launches:
        key, stage = launch.body["key"], session.resolved.spec.stage(launch.body["stage"])
        if session.trail.find(f"exit/{key}") or session.trail.find(f"lost/{key}"):
            continue
        folder = job_folder(session.run, key)
        session.launcher.cancel(folder, why)
        deadline = time.monotonic() + CANCEL_WAIT_S
        state = session.launcher.poll(folder)
        while state.state == "running" and time.monotonic() < deadline:
            time.sleep(0.2)
            state = session.launcher.poll(folder)
        record_end(session, stage, launch.body["attempt"], key, state)


def _keep_outputs(session: Session, stage: Stage, folder: Path) -> tuple[str | None, dict[str, Any]]:
    """Digest what the job left; row files also go into the store, weights stay where they are."""
    outputs: dict[str, Any] = {}
    manifest_path = folder / "manifest.json"
    if not is_own_file(manifest_path):
        return None, outputs
    with manifest_path.open("rb") as handle:
        raw = handle.read(MANIFEST_BYTES + 1)
    if named := current().known_in(raw):
        session.display.say(f"{stage.name}: the job's manifest holds the value of {named}; it does not count")
        return None, outputs
    try:
        read_json(raw, MANIFEST_BYTES)
        Manifest.model_validate_json(raw)
    except ValueError:
        session.display.say(f"{stage.name}: the job's manifest does not have the manifest's form; it does not count")
        return None, outputs
    for name, kind in outputs_of(stage.kind, stage.parameters).items():
        path = _output_path(folder, name, kind)
        if path.is_symlink() or not path.exists():
            continue
        stored = not path.is_dir()
        if stored and not is_own_file(path):
            session.display.say(f"{stage.name}: the job's {name} are a link or no file; they do not count")
            continue
        if (stored or kind == "files") and (named := _known_in(path)):
            # Evidence is kept as it is or not at all: its digest, and the metrics made from it, are of these bytes.
            session.display.say(f"{stage.name}: the job's {name} hold the value of {named}; they do not count")
            continue
        if kind == "files":
            digest = keep_files(session.store, path)
        else:
            digest = session.store.put(path.read_bytes()) if stored else digest_path(path)
        size = path.stat().st_size if stored else sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
        relative = path.relative_to(session.run).as_posix()
        outputs[name] = {"path": relative, "digest": digest, "bytes": size, "stored": stored}
    return session.store.put(raw), outputs


def _known_in(path: Path) -> str | None:
    """Return the name of a secret of this process that is in an output; None where there is none."""
    files = [path] if path.is_file() else list_tree(path)
    return next((named for one in files if (named := current().known_in(one.read_bytes()))), None)


def _log(session: Session, stage: Stage, folder: Path) -> bytes:
    """Return the job's log without secrets; what is no file of the job is none, which its exit record shows."""
    try:
        with open_file(folder / "log.txt") as handle:
            log = handle.read()
        if (masked := current().data(log)) != log:
            # Where it was printed to as well: a run folder is copied and handed on as it is.
            write_durably(folder / "log.txt", masked)
        return masked
    except NotReadable as error:
        session.display.say(f"{stage.name}: the job has no log: {error}")
        return b""


def _output_path(folder: Path, name: str, kind: str) -> Path:
    return folder / "out" / (name if kind in FOLDERS else f"{name}.jsonl")


def close(session: Session, state: State) -> State:
    """Write the report and close the trail with the session's result."""
    outcome = state.get("outcome", "escalate")
    close_with(session, outcome)
    return {"route": "close"}


def close_with(session: Session, outcome: str) -> None:
    """Record the report and the end of the session."""
    recorded = session.trail.find("report")
    if recorded is None:
        # Files are written before the entry that would be refused: not over those of who took the session over.
        session.trail.guard()
        written = report.write(session.run, session.trail.path.name, session.store.root.name, outcome)
        recorded = session.trail.append("report", "report", written)
    session.trail.append("close", "close", {"decision": recorded.body["outcome"], "report": recorded.digest})


def ensure_model(session: Session) -> Recorded:
    """Find or convert the weights the session starts from and record their digest, once.

    Raises:
        SpecError: the checkpoint's digest is not the one the spec pins.
    """
    spec = session.resolved.spec
    if spec.control is not None:
        _ensure(session, CONTROL, spec.control)
    return _ensure(session, "model", spec.model)


def _ensure(session: Session, key: str, source: ModelSource) -> Recorded:
    found = session.trail.find(key)
    if found is not None:
        return found
    path, digest = prepare_model(session.resolved, source, session.cache, session.display.say)
    body = {"source": source.source, "kind": source.kind, "path": str(path), "digest": digest}
    return session.trail.append("model", key, body)


def resolve_input(session: Session, reference: str) -> Artifact:
    """Return the artifact a reference of the spec stands for: one whose digest is in the trail, or what is left of it.

    Instructions that a model wrote are handed on without those that are held-out prompts.
    """
    if reference in ("model", "control"):
        body = _body(session, CONTROL if reference == "control" else "model")
        return Artifact(name=reference, path=body["path"], digest=body["digest"], bytes=0)
    owner, _, output = reference.partition(".")
    if reference in ("heldout", "constitution") or owner == "data":
        pinned = session.resolved.data_digests | {"constitution": session.resolved.constitution_digest}
        digest = pinned[output if owner == "data" else reference]
        path = session.store.path(digest)
        relative = path.relative_to(session.run).as_posix()
        return Artifact(name=reference, path=relative, digest=digest, bytes=path.stat().st_size)
    attempt = accepted_attempt(list(session.trail.iterate("decision", "human", "retraction")), owner)
    if attempt is None:
        raise PeergateError(f"stage '{owner}' has no accepted attempt", where=reference)
    made = _body(session, f"exit/{session.name}.{owner}.{attempt}")["outputs"][output]
    left = None
    if is_screened(session.resolved.spec.stage(owner), output):
        left = screened(session.store, session.resolved, made["digest"])
    if left is None:
        return Artifact(name=reference, path=made["path"], digest=made["digest"], bytes=made["bytes"])
    digest = session.store.put(left)
    path = session.store.path(digest).relative_to(session.run).as_posix()
    return Artifact(name=reference, path=path, digest=digest, bytes=len(left))


def _current(session: Session, state: State) -> tuple[Stage, int, str]:
    stage = session.resolved.spec.stage(state.get("stage", ""))
    attempt = state.get("attempt", 0)
    return stage, attempt, f"{session.name}.{stage.name}.{attempt}"


def _body(session: Session, key: str) -> dict[str, Any]:
    recorded = session.trail.find(key)
    if recorded is None:
        raise PeergateError(f"the trail has no entry '{key}'", where=session.name)
    return recorded.body


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
