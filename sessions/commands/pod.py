"""`peergate pod plan | up | start | attach | down`: a whole session on a machine that is reached over SSH."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from sessions.commands.lazy_group import CommandGroup
from sessions.commands.options import (
    HERE,
    Answer,
    AnswerReason,
    Json,
    PodName,
    Profile,
    SessionName,
    SpecName,
    need_reason,
    spread,
)
from sessions.commands.output import print_json, print_line, say
from sessions.pods import host_key, pod_plan
from sessions.pods.attach import PodWatcher, WatchOutcome
from sessions.pods.connection import PodConnection, require_ssh
from sessions.pods.host_key import HostKey
from sessions.pods.install import Bundle, bundle_of
from sessions.pods.lifecycle import down as end_pod
from sessions.pods.lifecycle import prepare, secrets_of
from sessions.pods.lifecycle import start as start_there
from sessions.pods.pod_checks import PodCheck
from sessions.pods.pod_file import PodFile, read_address, read_pod_file
from sessions.pods.pod_plan import gpus_of
from sessions.pods.pod_record import PodPlace, PodRecord, place_of
from sessions.run.run_layout import session_name
from sessions.run.terminal import masked_line
from specs.loading.loading import find_spec, load_spec
from specs.loading.stored_spec import read_resolved
from specs.session.session_spec import ResolvedSpec
from specs.system.errors import ExitCode, UserError
from specs.system.regular_files import read_regular

app = typer.Typer(cls=CommandGroup, help="Run a whole session on a machine you reach over SSH.", no_args_is_help=True)

Pods = Annotated[Path, typer.Option("--pods", help="Folder with the records of pods.", show_default=True)]
DEFAULT_PODS = Path("pods")


@dataclass(frozen=True)
class PodOptions:
    """A spec and the machine to run it on."""

    spec: SpecName = HERE
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="USER@HOST[:PORT]", help="The machine, or a Host of ~/.ssh/config."),
    ] = None
    pod: Annotated[
        Path | None, typer.Option("--pod", metavar="FILE", help="Pod file: machine, root, price, what ends it.")
    ] = None
    name: SessionName = None
    profile: Profile = None


def _read(wanted: PodOptions) -> tuple[Path, ResolvedSpec, Bundle, PodFile]:
    """Read spec and pod file.

    Raises:
        SpecError: one of them is wrong.
        UserError: no machine specified, or two; the session cannot run without a person next to it.
    """
    host, pod = wanted.host, wanted.pod
    if (host is None) == (pod is None):
        raise UserError("no machine specified", hint="either --host user@host or --pod FILE.yaml")
    path = find_spec(wanted.spec)
    resolved = load_spec(path, wanted.profile)
    if resolved.spec.builder.vendor == "external":
        hint = "a builder of another vendor, or `peergate mcp` on the machine itself"
        raise UserError("an external builder needs a client on the session's machine, and a pod has none", hint=hint)
    rented = [stage.name for stage in resolved.spec.stages if resolved.spec.launcher_of(stage.name) == "skypilot"]
    if rented:
        raise UserError(
            f"stage '{rented[0]}' has launcher 'skypilot', and the accounts for that are here, not on a pod",
            hint="with `local` or `ray` its jobs run on the pod; `peergate start` rents machines for it",
        )
    if host is not None:
        read_address(host)
    file = PodFile(host=host) if host else read_pod_file(pod or Path())
    file = file.model_copy(update={"gpus": max(file.gpus, gpus_of(resolved.spec))})
    return path, resolved, bundle_of(path, resolved), file


@app.command("plan")
@spread
def plan(wanted: PodOptions, as_json: Json = False) -> None:
    """Print what would happen, what ends the pod, and what it costs at most. Connects to nothing."""
    path, resolved, bundle, file = _read(wanted)
    planned = pod_plan.plan(path, resolved, bundle, file, session_name(wanted.name, resolved.spec.name))
    if as_json:
        print_json(planned)
        return
    for line in pod_plan.lines(planned):
        print_line(line)


@app.command("up")
@spread
def up(
    wanted: PodOptions,
    pin: Annotated[str | None, typer.Option("--host-key", metavar="SHA256:...", help="The expected host key.")] = None,
    pods: Pods = DEFAULT_PODS,
    as_json: Json = False,
) -> None:
    """Check the machine, install Peergate there, and bring the spec. Safe to repeat.

    Exit codes: 0 ready, 2 the spec or the pod file is wrong, 4 a check failed or the host key is not confirmed.
    """
    require_ssh()
    _, resolved, bundle, file = _read(wanted)
    place = place_of(pods, session_name(wanted.name, resolved.spec.name))
    place.folder.mkdir(parents=True, exist_ok=True)
    connection = place.connection(file)
    checks: list[PodCheck] = []

    def report(check: PodCheck) -> None:
        checks.append(check)
        if not as_json:
            print_line(f"{check.status}  {check.id:<10}  {masked_line(check.detail, 1000)}")
            if check.status != "PASS" and check.hint:
                print_line(f"      {masked_line(check.hint, 1000)}")

    try:
        pins = tuple(text for text in (pin, file.host_key) if text) if pin is None else (pin,)
        key = host_key.confirm(connection, pins, _ask_person if sys.stdin.isatty() else None)
        report(PodCheck("host_key", "PASS", f"{key.kind} {key.fingerprint}"))
        record = prepare(connection, place, file, resolved, bundle, report)
        place.write(record.model_copy(update={"profile": wanted.profile}), resolved)
    finally:
        connection.close()
        if as_json:
            print_json({"session": place.name, "checks": [check._asdict() for check in checks]})
    say(f"the pod is ready; `peergate pod start {place.name}{_option(pods)}` starts the session")


def _ask_person(key: HostKey) -> bool:
    print_line(f"the pod's host key is {key.kind} {key.fingerprint}", err=True)
    print("compare it with what your provider shows. Is it this one? Type yes: ", file=sys.stderr, end="", flush=True)
    return sys.stdin.readline().strip().lower() == "yes"


@app.command("start")
def start(
    name: PodName,
    pods: Pods = DEFAULT_PODS,
    answer: Annotated[
        Answer | None,
        typer.Option("--answer", help="Answer the question of a waiting session, as with `peergate resume`."),
    ] = None,
    reason: AnswerReason = "",
) -> None:
    """Start the session there, detached, or continue a session that was paused, killed or waits."""
    need_reason(answer, reason)
    place, record, connection = _load_pod(name, pods)
    with closing(connection):
        resolved = read_resolved(read_regular(place.resolved_path))
        started = start_there(connection, record, secrets_of(resolved.spec), answer, reason)
    verb = "continues" if started["begun"] else "started"
    say(
        f"{name} {verb} on {record.pod.host}, orchestrator {started['pid']}; "
        f"`peergate pod attach {name}{_option(pods)}`"
    )


@app.command("attach")
def attach(name: PodName, pods: Pods = DEFAULT_PODS) -> NoReturn:
    """Show the session, pull trail and files at every gate, and keep the signed head here.

    A lost connection is restored. Ctrl-C detaches; the session continues. Exit codes: those of the session, 4 the
    orchestrator is gone or waits for a person, 5 the pulled trail is damaged, 130 detached or paused.
    """
    place, record, connection = _load_pod(name, pods)
    with closing(connection):
        try:
            ended = PodWatcher(connection, place, record, say).watch()
        except KeyboardInterrupt:
            say(f"detached; the session continues there, `peergate pod attach {name}{_option(pods)}` shows it again")
            raise SystemExit(int(ExitCode.INTERRUPTED)) from None
    raise SystemExit(int(_report_end(ended, place, pods)))


def _report_end(ended: WatchOutcome, place: PodPlace, pods: Path) -> ExitCode:
    """Print how the session ended and return its exit code."""
    # Slow: takes a second to import.
    from sessions.pages.overview import EXIT_CODES, is_waiting, overview
    from sessions.run.run_history import read_history

    again = f"`peergate pod start {place.name}{_option(pods)}`"
    status = ended.status
    if ended.why == "closed":
        state = overview(place.run)
        print_line(f"{place.name}: closed, {state.decision}")
        print_line(f"report: {place.run}/report/report.md")
        anchors = f"--anchor {place.anchors()[-1].where} --policy {place.policy_path}"
        print_line(f"verify: peergate audit verify {place.run} {anchors}")
        return EXIT_CODES.get(state.decision or "", ExitCode.BLOCKED)
    if ended.why == "never":
        say(f"nothing was started there; {again} does")
        return ExitCode.BLOCKED
    if ended.why == "gone":
        how = "is gone without an exit code: it was killed, or the machine was restarted"
        how = how if status.code is None else f"was killed by signal {status.code - 128}"
        say(f"the orchestrator (process {status.pid}) {how}; nothing is lost, {again} continues")
        return ExitCode.BLOCKED
    if status.ending is not None:
        say(f"the pod was ended ({masked_line(status.ending, 300)}); the session is paused and everything was pulled")
        return ExitCode.INTERRUPTED
    if ended.pulled is not None and is_waiting(read_history(place.run)):
        for reason in overview(place.run).reasons:
            say(f"  - {masked_line(reason, 2000)}")
        say(f"it waits for a person: {again} --answer retry|approve|stop --reason WHY")
    else:
        say(f"the orchestrator ended with {status.code}; {again} continues")
    known = {int(exit_code): exit_code for exit_code in ExitCode}
    return known.get(status.code or 0, ExitCode.FAULT) if status.code else ExitCode.BLOCKED


@app.command("down")
def down(
    name: PodName,
    pods: Pods = DEFAULT_PODS,
    pause: Annotated[bool, typer.Option("--pause", help="First pause a running session.")] = False,
) -> None:
    """Pull and verify everything here, then end what runs there and run the shutdown command.

    Nothing is ended before everything is verified. Exit codes: 0 ended, 4 the session runs, 5 the copy does not verify.
    """
    place, record, connection = _load_pod(name, pods)
    with closing(connection):
        pulled = end_pod(connection, place, record, say, pause=pause)
    text = f"{pulled.entries} entries are kept in {place.run}" if pulled else "there was no session"
    ended = "its processes are ended, the machine is yours to end"
    machine = "the shutdown command was run" if record.pod.shutdown else ended
    print_line(f"{name}: the pod is ended, {machine}; {text}")


def _load_pod(name: str, pods: Path) -> tuple[PodPlace, PodRecord, PodConnection]:
    require_ssh()
    place = place_of(pods, name)
    record = place.read()
    return place, record, place.connection(record.pod)


def _option(pods: Path) -> str:
    return "" if pods == Path("pods") else f" --pods {pods}"
