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
            "init": "init",
            "start": "run",
            "resume": "run",
            "mcp": "mcp",
            "pause": "run",
            "cancel": "run",
            "status": "status",
            "list": "status",
            "report": "report",
            "get": "artifacts.get",
            "export": "artifacts.export",
            "ship": "artifacts.ship",
            "prune": "artifacts.prune",
            "cost": "cost",
        },
        "People": {
            "override": "human",
            "retract": "human",
            "amend": "human",
        },
        "Look inside": {
            "view": "view",
            "replicate": "seeds",
            "seeds": "seeds",
            "replay": "replay",
            "diagnose": "report",
            "backlog": "acceptance.backlog",
            "retrospective": "acceptance.backlog",
            "transcript": "report",
            "graph": "report",
        },
        "Commands": {
            "spec": "spec",
            "audit": "audit",
            "check": "check",
            "review": "review",
            "pod": "pod",
            "traces": "traces",
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
