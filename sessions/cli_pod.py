"""The commands `peergate pod ...`: a whole session on a machine that is reached over SSH."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

pod_app = typer.Typer(help="Run a whole session on a machine you reach over SSH.", no_args_is_help=True)

Spec = Annotated[str, typer.Argument(help="Spec file, or the name of a shipped spec.")]
Host = Annotated[
    str | None, typer.Option("--host", metavar="USER@HOST[:PORT]", help="The machine, or a Host of ~/.ssh/config.")
]
PodOption = Annotated[
    Path | None, typer.Option("--pod", metavar="FILE", help="Pod file: machine, root, price, what ends it.")
]
SessionName = Annotated[str | None, typer.Option("--name", help="Name of the session; the spec's name by default.")]
Profile = Annotated[str | None, typer.Option("--profile", help="Which of the spec's profiles; its own by default.")]
Name = Annotated[str, typer.Argument(help="Name of the session.")]
Pods = Annotated[Path, typer.Option("--pods", help="Folder that holds what is kept of pods here.", show_default=True)]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]
DEFAULT_PODS = Path("pods")


@pod_app.command("plan")
def pod_plan(
    spec: Spec,
    host: Host = None,
    pod: PodOption = None,
    name: SessionName = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Say what would happen, what ends the pod, and what it costs at most. Connects to nothing."""
    from sessions.commands import pod as command

    command.plan(command.Wanted(spec, host, pod, name, profile), json)


@pod_app.command("up")
def pod_up(
    spec: Spec,
    host: Host = None,
    pod: PodOption = None,
    name: SessionName = None,
    profile: Profile = None,
    host_key: Annotated[
        str | None, typer.Option("--host-key", metavar="SHA256:...", help="The host key it has to have.")
    ] = None,
    pods: Pods = DEFAULT_PODS,
    json: Json = False,
) -> None:
    """Check the machine, install Peergate there, and bring the spec. Safe to repeat.

    Exit codes: 0 ready, 2 the spec or the pod file is wrong, 4 a check failed or the host key is not confirmed.
    """
    from sessions.commands import pod as command

    command.up(command.Wanted(spec, host, pod, name, profile), host_key, pods, json)


@pod_app.command("start")
def pod_start(
    name: Name,
    pods: Pods = DEFAULT_PODS,
    answer: Annotated[
        Literal["retry", "approve", "stop"] | None,
        typer.Option("--answer", help="Settle what a waiting session asks, as with `peergate resume`."),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; recorded in the trail. Needed with --answer.")] = "",
) -> None:
    """Start the session there, detached, or go on with one that was paused, killed or waits."""
    from sessions.commands import pod as command

    command.start(name, pods, answer, reason)


@pod_app.command("attach")
def pod_attach(name: Name, pods: Pods = DEFAULT_PODS) -> None:
    """Show the session, pull trail and files at every gate, and keep the signed head here.

    A lost connection is made again. Ctrl-C detaches; the session goes on. Exit codes: those of the session, 4 the
    orchestrator is gone or waits for a person, 5 what came from the pod does not hold, 130 detached or paused.
    """
    from sessions.commands import pod as command

    command.attach(name, pods)


@pod_app.command("down")
def pod_down(
    name: Name,
    pods: Pods = DEFAULT_PODS,
    pause: Annotated[bool, typer.Option("--pause", help="Pause a session that runs first.")] = False,
) -> None:
    """Pull and verify everything here, then end what runs there and run the shutdown command.

    Nothing is ended before everything is verified. Exit codes: 0 ended, 4 the session runs, 5 the copy does not hold.
    """
    from sessions.commands import pod as command

    command.down(name, pods, pause)
