"""The command line: `peergate`. A command's module is imported when the command is called, so `--help` is fast."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from sessions.commands.lazy_group import LazyGroup
from specs.system.errors import ExitCode, PeergateError, UserError
from specs.system.home import HOME, PACKAGES, from_elsewhere


class _Root(LazyGroup):
    listed = {
        "Sessions": {
            "init": (
                "init",
                "Write a new experiment: a spec, its data in two parts, a verifier and a page on what to do next.",
            ),
            "start": ("run", "Register a spec and run the session, gate by gate."),
            "resume": ("run", "Continue a paused, killed or waiting session."),
            "mcp": (
                "mcp",
                "Let an MCP client, such as Claude Code or Codex, build, manage or read sessions (docs/how-to/mcp.md).",
            ),
            "pause": ("run", "Ask a running session to pause at the next safe place, and wait until it has."),
            "cancel": ("run", "End a session for good, its running job included; waits until it has ended."),
            "status": ("status", "Show a session's stage, decisions, money, time and acceptance criteria."),
            "list": ("status", "List the sessions of a folder."),
            "report": ("status", "Print the report of a session."),
            "get": ("artifacts.get", "Copy the model that a session leaves."),
            "export": (
                "artifacts.export",
                "Write what a session found in the format of another tool.",
            ),
            "ship": ("artifacts.ship", "Check whether a model can be used, and release it."),
            "prune": (
                "artifacts.prune",
                "Delete the weights and snapshots of a closed session; digests, rows, records and reports stay.",
            ),
            "cost": ("cost", "Show what is spent, reserved and left, and what the next stage may take."),
        },
        "People": {
            "override": ("human", "Lift a gate, a check or a condition, in your name."),
            "retract": ("human", "Take a decision back, with everything that was granted after it."),
            "amend": ("human", "Change the registered spec of an open session."),
        },
        "Look inside": {
            "view": ("view", "Show sessions in a browser on this machine: results, samples, gates, numbers, trails."),
            "replicate": (
                "seeds",
                "Run the registered design of a closed session with further seeds, and count all of them.",
            ),
            "seeds": ("seeds", "Compare sessions of one design: the gain with seeds and items both as samples."),
            "diagnose": (
                "status",
                "Print which class of cause binds in a training, with the evidence, and what to do next.",
            ),
            "backlog": (
                "acceptance.backlog",
                "Rank what is left of the acceptance criteria by what it adds to ship-% an hour.",
            ),
            "retrospective": (
                "acceptance.backlog",
                "Print how ship-% moved, what showed each criterion, and what became of an audit's recommendations.",
            ),
            "transcript": ("status", "Show what the builder said and did, and what the gate answered."),
            "graph": ("status", "Print the session graph as Mermaid."),
        },
        "Commands": {
            "spec": ("spec", "Check and show specs."),
            "audit": ("audit", "Read and verify the trail of a session."),
            "check": ("check", "List and explain the checks of every stage, and run them again."),
            "review": ("review", "Ask for a review, give one, or read older ones."),
            "pod": ("pod", "Run a whole session on a machine you reach over SSH."),
            "traces": ("traces", "Read recorded conversations of coding agents."),
        },
    }


def _say_version(wanted: bool) -> None:
    """Print the version and end."""
    if wanted:
        from importlib.metadata import version

        print(f"peergate {version('peergate')}")
        raise typer.Exit


def _root(
    version: Annotated[  # Typer calls its callback.
        bool, typer.Option("--version", help="Print the version and exit.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that go before a command."""


app = typer.Typer(
    cls=_Root,
    callback=_root,
    context_settings={"help_option_names": ["-h", "--help"]},
    name="peergate",
    help="Autonomous post-training sessions whose stages open only on an independent, evidence-bound verdict.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 done, 1 fault, 2 usage or spec, 3 rejected by a gate, 4 blocked, 5 damage found, 6 budget, "
    "130 paused. `audit verify` has its own: 0 verified and closed, 1 tampered, 2 valid but open "
    "or newer than the anchors given, 3 unreadable, 4 not witnessed again.",
)


def require_own_packages() -> None:
    """Raise UserError if one of the five packages comes from another distribution, as `agents` of `openai-agents`."""
    for name, where in from_elsewhere(PACKAGES):
        raise UserError(
            f"import name '{name}' is provided by {where or 'nothing'}, not by Peergate in {HOME}",
            hint="install peergate in a separate environment (openai-agents also installs 'agents')",
        )


def require_utf8() -> None:
    """Start this command again in Python's UTF-8 mode where the locale has another encoding for names of files.

    A path with an umlaut could not be written into a trail otherwise, which is UTF-8 on every machine.
    """
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def main() -> None:
    """Run the command line; report every expected error as one message with its exit code."""
    require_utf8()
    try:
        from sessions.run.private_files import keep_private
        from sessions.run.terminal import mask_output

        keep_private()
        require_own_packages()
        mask_output()
        app()
    except KeyboardInterrupt:
        print("peergate: interrupted; `peergate resume` continues", file=sys.stderr)
        raise SystemExit(int(ExitCode.INTERRUPTED)) from None
    except BrokenPipeError:
        raise SystemExit(int(ExitCode.FAULT)) from None
    except Exception as error:
        from sessions.commands.output import print_error
        from sessions.run.disk_errors import no_access, no_room

        failure = error if isinstance(error, PeergateError) else no_room(error) or no_access(error)
        if failure is None:
            raise
        print_error(failure)
        raise SystemExit(int(failure.exit_code)) from None


if __name__ == "__main__":
    main()
