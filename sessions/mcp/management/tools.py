"""The tools of the management server as typed arguments, and how each is carried out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from sessions.builder.tools.tool_context import ToolCallRefusal, read_arguments
from sessions.mcp.management import processes
from sessions.mcp.management.project import Project
from specs.system.regular_files import read_regular
from specs.trail.requested_review import ReviewKind, Tier
from specs.trail.tool_arguments import Arguments, Tool

LOOK_S = 0.5
POD_LOOK_S = 5.0
"""Each look is a connection."""
BEGIN_S = 120.0
"""How long a start may take until its session is registered or refused."""

SpecFile = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,80}\.yaml$")]
ReadFile = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,80}\.(yaml|md)$")]
SessionName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
ProfileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Wait = Annotated[int, Field(ge=0, le=1800)]


class ListFiles(Arguments):
    """List the project's specs, notes and data files, with their sizes."""


class ReadSpecFile(Arguments):
    """Read a spec or a note (.yaml, .md) of the project. Data files cannot be read: they may hold held-out items."""

    file: ReadFile


class WriteSpec(Arguments):
    """Write a spec as NAME.draft.yaml. It starts nothing before a person has signed it; check it first.

    Files that it names are paths below the project's folder. The resource peergate://spec/schema has the form.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,40}$")]
    text: Annotated[str, StringConstraints(min_length=1, max_length=200_000)]


class CheckSpec(Arguments):
    """Check a spec offline: every problem, its cost, and what the gate of its design would decide."""

    file: SpecFile
    profile: ProfileName | None = None


class StartSession(Arguments):
    """Start a session with a spec that a person has signed; the signature is used up. The session runs on its own.

    A session whose builder is `external` waits for its builder's client after the gate of the design.
    """

    file: SpecFile
    name: SessionName
    profile: ProfileName | None = None


class ResumeSession(Arguments):
    """Continue a paused or killed session. What a person is asked, only a person answers."""

    session: SessionName


class PauseSession(Arguments):
    """Pause a session at its next safe place. Its job continues."""

    session: SessionName


class ListSessions(Arguments):
    """List the sessions: state, decision, open stage."""


class SessionStatus(Arguments):
    """Show a session: stage, decisions, reasons, money, acceptance; first wait until its state or stage changes."""

    session: SessionName
    wait_seconds: Wait = 0


class ListPods(Arguments):
    """List the pods that a person has prepared (`peergate pod up`), with price, and their sessions as last pulled."""


class StartPod(Arguments):
    """Start the session of a prepared pod there, or continue it. What a person is asked, only a person answers."""

    session: SessionName


class PodStatus(Arguments):
    """Pull what is new from a pod and show its session; first wait until a gate has decided or the session stops."""

    session: SessionName
    wait_seconds: Wait = 0


class RequestFileReview(Arguments):
    """Have specs or notes of the project reviewed in full.

    In a session its registered reviewer answers, from its budget. Without one rules answer, at no cost.
    """

    kind: ReviewKind
    files: Annotated[tuple[ReadFile, ...], Field(min_length=1, max_length=10)]
    note: Annotated[str, StringConstraints(max_length=4000)] = ""
    effort: Tier = "medium"
    session: SessionName | None = None


class AuditTrail(Arguments):
    """Verify the trail of a session: signatures, evidence, and every number and decision computed again."""

    session: SessionName


@dataclass
class ToolInvocation:
    """One call while it is carried out."""

    project: Project
    doing: str = "it begins"
    """What a waiting client reads."""


def list_files(call: ToolInvocation, _: ListFiles) -> str:
    """Return names and sizes."""
    return "\n".join(f"{name}: {size} bytes" for name, size in call.project.files()) or "the folder is empty"


def read_spec_file(call: ToolInvocation, arguments: ReadSpecFile) -> str:
    """Return the text of a spec or a note."""
    return call.project.clean(read_regular(call.project.file(arguments.file)).decode("utf-8", "replace"))


def write_spec(call: ToolInvocation, arguments: WriteSpec) -> str:
    """Write a draft."""
    path = call.project.write_draft(arguments.name, arguments.text)
    return f"{path.name} is written; check_spec says what is wrong with it, and a person signs it before it can start"


def check_spec(call: ToolInvocation, arguments: CheckSpec) -> str:
    """Return what ``peergate spec check`` says of a spec."""
    path = call.project.file(arguments.file)
    profile = _profile(arguments.profile)
    call.doing = "it is checked"
    done = processes.run(["spec", "check", str(path), "--json", *profile])
    message = call.project.clean_of(path, f"exit code {done.code}\n{done.out or done.error}")
    return _require_success(done, message, fine=(0, 2, 3, 4))


def start_session(call: ToolInvocation, arguments: StartSession) -> str:
    """Start a session in a separate process, and return when it is registered."""
    project, path = call.project, call.project.file(arguments.file)
    if project.has(arguments.name):
        raise ToolCallRefusal(f"session '{arguments.name}' already exists: choose another name, or resume it")
    command = ["start", str(path), "--signed", "--name", arguments.name, *project.runs_option]
    started = processes.begin([*command, *_profile(arguments.profile)], project.log(arguments.name))
    until = time.monotonic() + BEGIN_S
    while not project.has(arguments.name):
        if (code := started.poll()) is not None:
            raise ToolCallRefusal(
                project.clean_of(path, f"nothing was started (exit code {code}): {started.read_error_output()}")
            )
        if time.monotonic() > until:
            raise ToolCallRefusal("it has not been registered yet; list_sessions shows when it is")
        call.doing = "the session is being registered"
        time.sleep(LOOK_S)
    return f"session {arguments.name} is registered and runs; session_status shows it"


def resume_session(call: ToolInvocation, arguments: ResumeSession) -> str:
    """Continue a session in a separate process."""
    project, run = call.project, call.project.session(arguments.session)
    before = project.overview(run)
    if before.state in ("closed", "running", "damaged"):
        raise ToolCallRefusal(f"session {arguments.session} is {before.state}: nothing to continue")
    started = processes.begin(["resume", arguments.session, *project.runs_option], project.log(arguments.session))
    until = time.monotonic() + BEGIN_S
    while started.poll() is None and time.monotonic() < until:
        if project.overview(run).state == "running":
            return f"session {arguments.session} continues; session_status shows it"
        call.doing = "the session is being taken up"
        time.sleep(LOOK_S)
    now = project.overview(run)
    message = f"session {arguments.session} is {now.state}{': ' if now.reasons else ''}{'; '.join(now.reasons)}"
    return project.clean_for(run, f"{message}\n{started.read_error_output()}")


def pause_session(call: ToolInvocation, arguments: PauseSession) -> str:
    """Ask a session to pause and wait until it has."""
    project, run = call.project, call.project.session(arguments.session)
    call.doing = "it pauses"
    done = processes.run(["pause", arguments.session, *project.runs_option])
    return _require_success(done, project.clean_for(run, done.out or done.error))


def list_sessions(call: ToolInvocation, _: ListSessions) -> str:
    """Return the sessions without reasons: those may quote what a builder must not read."""
    visible = ("name", "state", "decision", "stage", "attempt", "started", "ended")
    every = [{name: overview.as_json()[name] for name in visible} for overview in call.project.sessions()]
    return json.dumps({"sessions": every}, indent=1)


def session_status(call: ToolInvocation, arguments: SessionStatus) -> str:
    """Wait until state or stage change, and return the status."""
    project, run = call.project, call.project.session(arguments.session)
    first = now = project.overview(run)
    until = time.monotonic() + arguments.wait_seconds
    while now.state == "running" and (now.stage, now.attempt) == (first.stage, first.attempt):
        if time.monotonic() >= until:
            break
        call.doing = f"{now.state}, stage {now.stage or 'design'}, {now.entries} entries"
        time.sleep(LOOK_S)
        now = project.overview(run)
    done = processes.run(["status", arguments.session, "--json", *project.runs_option])
    return _require_success(done, project.clean_for(run, done.out or done.error))


def list_pods(call: ToolInvocation, _: ListPods) -> str:
    """Return the pods without asking any."""
    from sessions.mcp.management import pods

    return json.dumps({"pods": pods.every(call.project.pods)}, indent=1)


def start_pod(call: ToolInvocation, arguments: StartPod) -> str:
    """Start or continue a session there."""
    from sessions.mcp.management import pods

    place = pods.require_pod(call.project.pods, arguments.session)
    command = ["pod", "start", place.name, "--pods", str(call.project.pods)]
    call.doing = "the pod is asked"
    done = processes.run(command)
    return _require_success(done, call.project.clean(done.error or done.out))


def pod_status(call: ToolInvocation, arguments: PodStatus) -> str:
    """Wait for a gate or the end, and return the state there and the status of the pulled session."""
    from sessions.mcp.management import pods

    project, place = call.project, pods.require_pod(call.project.pods, arguments.session)
    first = now = pods.look(place)
    until = time.monotonic() + arguments.wait_seconds
    while now.orchestrator == "running" and now.gates == first.gates and time.monotonic() < until:
        call.doing = f"{now.orchestrator}, {now.gates} gates, {now.entries} entries"
        time.sleep(POD_LOOK_S)
        now = pods.look(place)
    message = f"the orchestrator there: {now.orchestrator}{'' if now.code is None else f', exit code {now.code}'}"
    if now.ending is not None:
        message += f"; the pod is being ended: {now.ending}"
    if not now.entries:
        return project.clean(f"{message}; nothing was started there yet")
    done = processes.run(["status", place.name, "--json", "--runs", str(place.run.parent)])
    return _require_success(done, project.clean_for(place.run, f"{message}\n{done.out or done.error}"))


def request_review(call: ToolInvocation, arguments: RequestFileReview) -> str:
    """Return the answer to a requested review."""
    project = call.project
    files = [project.file(read_file) for read_file in arguments.files]
    run = project.session(arguments.session) if arguments.session else None
    inside = ["--session", arguments.session] if arguments.session else []
    texts = [f"--kind={arguments.kind}", f"--note={arguments.note}", f"--effort={arguments.effort}", "--json"]
    command = ["review", "request", *map(str, files), *texts, *inside, *project.runs_option]
    call.doing = "it is reviewed"
    done = processes.run(command)
    output = done.out or done.error
    if run is not None:
        output = project.clean_for(run, output)
    for path in files:
        output = project.clean_of(path, output)
    return _require_success(done, output)


def audit_trail(call: ToolInvocation, arguments: AuditTrail) -> str:
    """Return what ``peergate audit verify`` says."""
    project, run = call.project, call.project.session(arguments.session)
    command = ["audit", "verify", arguments.session, "--json", *project.runs_option]
    call.doing = "the trail is verified"
    done = processes.run(command)
    return _require_success(
        done, project.clean_for(run, f"exit code {done.code}\n{done.out or done.error}"), fine=(0, 1, 2, 3)
    )


_EVERY: tuple[tuple[type[Arguments], Callable[[ToolInvocation, Any], str]], ...] = (
    (ListFiles, list_files),
    (ReadSpecFile, read_spec_file),
    (WriteSpec, write_spec),
    (CheckSpec, check_spec),
    (StartSession, start_session),
    (ResumeSession, resume_session),
    (PauseSession, pause_session),
    (ListSessions, list_sessions),
    (SessionStatus, session_status),
    (ListPods, list_pods),
    (StartPod, start_pod),
    (PodStatus, pod_status),
    (RequestFileReview, request_review),
    (AuditTrail, audit_trail),
)
TOOLS = tuple(
    Tool(carry_out.__name__, " ".join((arguments.__doc__ or "").split()), arguments, ())
    for arguments, carry_out in _EVERY
)
"""In the order in which they are shown."""
_CARRY_OUT: dict[str, Callable[[ToolInvocation, Any], str]] = {carry_out.__name__: carry_out for _, carry_out in _EVERY}


def carry_out(call: ToolInvocation, name: str, arguments: str) -> str:
    """Return the result of a call; raises Refused, or a PeergateError that its client may read."""
    tool = next((tool for tool in TOOLS if tool.name == name), None)
    if tool is None:
        raise ToolCallRefusal(f"unknown tool; the tools are {', '.join(tool.name for tool in TOOLS)}")
    return _CARRY_OUT[tool.name](call, read_arguments(tool, arguments))


def _profile(name: str | None) -> list[str]:
    return ["--profile", name] if name else []


def _require_success(done: processes.CommandResult, text: str, fine: tuple[int, ...] = (0,)) -> str:
    if done.code not in fine:
        raise ToolCallRefusal(f"exit code {done.code}: {text}" if text else f"exit code {done.code}")
    return text
