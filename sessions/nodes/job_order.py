"""What a job is ordered to do: parameters, inputs, weights, a step to resume from, all in the trail before it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from reviews.evidence.heldout_screen import is_screened, screen_items
from reviews.evidence.resumable_steps import sources
from sessions.jobs.job_environment import job_environment
from sessions.jobs.launcher import job_folder
from sessions.session import Session, State
from specs.jobs.job_records import Artifact, JobOrder
from specs.session.design import ModelSource, kind_in_order
from specs.session.session_spec import ResolvedSpec, SessionSpec
from specs.stages.base.stage import TASKS
from specs.stages.registry import Stage, resolve_parameters
from specs.system.confinement import task_file
from specs.system.confinement.verifier_command import VerifierLimits
from specs.system.errors import PeergateError, UserError
from specs.trail.gate_bodies import GrantEntry, PlanEntry
from specs.trail.session_bodies import ExitEntry, LaunchEntry, ModelEntry, OpenEntry, ResumeEntry
from training.jobs.saved_steps import find_resumable_step

CONTROL = ModelEntry.key_of("control")
"""The key under which the second checkpoint of a session is recorded."""


def order_of(session: Session, state: State) -> JobOrder:
    """Rebuild the order from the recorded grant: the same bytes every time."""
    stage, attempt, key = current_attempt(session, state)
    changes = session.entry(PlanEntry, stage.name, attempt).changes
    return JobOrder.model_validate(
        {
            "key": key,
            "kind": stage.kind,
            "parameters": resolve_parameters(stage, changes).model_dump(mode="json"),
            "inputs": {role: resolve_input(session, reference) for role, reference in sorted(stage.inputs.items())},
            "task": session.resolved.spec.task,
            "task_text": session.resolved.task_text,
            "verifier": _verifier_limits(session.resolved.spec),
            "grant": dict(session.entry(GrantEntry, key)),
            "code": _running_code(session),
            "max_seconds": stage.max_minutes * 60,
            "dead_man_minutes": session.resolved.spec.budget.dead_man_minutes,
            "model_kind": kind_in_order(session.resolved.spec, stage),
        }
    )


def _verifier_limits(spec: SessionSpec) -> VerifierLimits:
    """Return the registered limits; with a sandbox in a run whose spec this user neither started nor signed."""
    limits = spec.verifier.limits()
    trusted = all(map(task_file.may_run_unconfined, spec.tasks() - {*TASKS}))
    return limits if trusted else limits.model_copy(update={"sandbox": True})


def resolve_resume_step(session: Session, order: JobOrder) -> JobOrder:
    """Return the order with the newest whole step of earlier attempts, bound by its digest; a launched order stays."""
    launched = session.find(LaunchEntry, order.key)
    if launched is not None:
        return JobOrder.model_validate_json(session.store.get(launched.body.order))
    for before in sources(session.history, order):
        try:
            resume_step = find_resumable_step(session.run, job_folder(session.run, before.key), before.grant.attempt)
        except (OSError, ValueError) as error:
            text = f"starts anew: the steps of attempt {before.grant.attempt} cannot be used: {error}"
            session.display.say(f"{order.key} {text}")
            continue
        if resume_step is not None:
            session.display.say(f"{order.key} resumes from step {resume_step.step} of attempt {resume_step.attempt}")
            return order.model_copy(update={"resumes": resume_step})
    return order


def ensure_model(session: Session) -> None:
    """Find or convert the session's weights and record their digest, once; errors as in :func:`prepare_model`."""
    spec = session.resolved.spec
    for key, source in ((CONTROL, spec.control), (ModelEntry.KIND, spec.model)):
        if source is not None and session.trail.find(key) is None:
            model = prepare_model(session.resolved, source, session.cache, session.display.say)
            facts = {"revision": model.revision} if model.revision is not None else {}
            body = ModelEntry(
                source=source.source, kind=source.kind, path=str(model.path), digest=model.digest, **facts
            )
            session.trail.append(body, key)


def resolve_input(session: Session, reference: str) -> Artifact:
    """Return the artifact that a reference of the spec names, generated instructions without held-out prompts."""
    if reference in ("model", "control"):
        model = session.entry(ModelEntry, *(("control",) if reference == "control" else ()))
        return Artifact(name=reference, path=model.path, digest=model.digest, bytes=0)
    owner, _, output = reference.partition(".")
    if reference in ("heldout", "constitution") or owner == "data":
        pinned = dict[str, str | None](session.resolved.data_digests)
        pinned["constitution"] = session.resolved.constitution_digest
        digest = pinned[output if owner == "data" else reference]
        if digest is None:
            raise PeergateError("the registered spec names no constitution", where=reference)
        return _make_stored_artifact(session, reference, digest)
    attempt = session.history.accepted_attempt(owner)
    if attempt is None:
        raise PeergateError(f"stage '{owner}' has no accepted attempt", where=reference)
    made = session.entry(ExitEntry, attempt.job).outputs[output]
    if is_screened(session.resolved.spec.stage(owner), output):
        data = screen_items(session.store, session.resolved, made.digest)
        if data is not None:
            return _make_stored_artifact(session, reference, session.store.put(data))
    return Artifact(name=reference, path=made.path, digest=made.digest, bytes=made.bytes)


def _make_stored_artifact(session: Session, reference: str, digest: str) -> Artifact:
    path = session.store.path(digest)
    relative = path.relative_to(session.run).as_posix()
    return Artifact(name=reference, path=relative, digest=digest, bytes=path.stat().st_size)


class PreparedModel(NamedTuple):
    """A checkpoint that a session starts from."""

    path: Path
    digest: str
    revision: str | None = None
    """The commit of the hub that it was taken from."""


def prepare_model(
    resolved: ResolvedSpec, source: ModelSource, cache: Path, say: Callable[[str], None]
) -> PreparedModel:
    """Return a checkpoint, or raise UserError if it is missing or another one than pinned."""
    say(f"model {source.source}: finding the checkpoint (the first time it is converted, about half a minute)")
    words = ["training.jobs.base_model", source.source, "--origin", resolved.origin, "--cache", str(cache)]
    if source.template_date is not None:
        words += ["--date", source.template_date.isoformat()]
    done = subprocess.run(
        [sys.executable, "-P", "-m", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=job_environment(),
        cwd=resolved.origin,
        check=False,
    )
    if done.returncode != 0:
        message = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no message"
        raise UserError(f"the model cannot be prepared: {message}", where=source.source)
    try:
        result = json.loads(done.stdout.strip().splitlines()[-1])
        model = PreparedModel(Path(result["path"]), str(result["digest"]), result.get("revision"))
    except (ValueError, KeyError, IndexError) as error:
        raise PeergateError(f"training.jobs.base_model printed no result: {error}", where=source.source) from error
    if source.digest is not None and model.digest != source.digest:
        raise UserError(
            f"the checkpoint's digest is {model.digest}, the spec pins {source.digest}",
            where=source.source,
            hint="these are other weights; to use them, change the digest in a new spec",
        )
    return model


def _running_code(session: Session) -> str:
    """Return the digest of the code that was recorded when the session was last opened or resumed."""
    started = session.history.newest(OpenEntry, ResumeEntry)
    assert started is not None, "the graph starts after the registration"
    return started.body.code_state.digest


def current_attempt(session: Session, state: State) -> tuple[Stage, int, str]:
    """Return the stage that is open, its attempt, and the key of that attempt's job."""
    stage = session.resolved.spec.stage(state.get("stage", ""))
    attempt = state.get("attempt", 0)
    return stage, attempt, f"{session.name}.{stage.name}.{attempt}"
