"""Arguments and options that several commands share, and how a dataclass declares them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer

from sessions.run.run_layout import is_run, run_folder
from specs.session_words import DEFAULT_RUNS, RUNS_VARIABLE
from specs.system.errors import UserError

NEWEST = Path("-")
"""What stands for the newest session where a command has more arguments after RUN, or ends something."""


def complete_run(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of sessions that begin with what was typed, for the shell."""
    runs = Path(ctx.params.get("runs") or os.environ.get(RUNS_VARIABLE) or DEFAULT_RUNS)
    try:
        return sorted(path.name for path in runs.iterdir() if path.name.startswith(incomplete) and is_run(path))
    except OSError:
        return []


def complete_spec(incomplete: str) -> list[str]:
    """Return the shipped specs, YAML files and folders that begin with what was typed, for the shell."""
    # Slow: few commands read specs.
    from specs.loading.loading import list_shipped_specs

    folder = Path(incomplete).parent if incomplete and not incomplete.endswith("/") else Path(incomplete)
    try:
        texts = [f"{path}/" if path.is_dir() else str(path) for path in folder.iterdir()]
    except OSError:
        texts = []
    files = (text for text in texts if text.endswith(("/", ".yaml", ".yml")))
    return sorted(text for text in (*list_shipped_specs(), *files) if text.startswith(incomplete))


Runs = Annotated[
    Path,
    typer.Option("--runs", envvar=RUNS_VARIABLE, help="Folder that holds the run folders.", show_default=True),
]
Run = Annotated[
    Path | None,
    typer.Argument(
        metavar="RUN",
        help="A session: its name in the folder of --runs, or its run folder. The newest without it.",
        autocompletion=complete_run,
        show_default=False,
    ),
]
RequiredRun = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="A session: its name in the folder of --runs, or its run folder; - for the newest.",
        autocompletion=complete_run,
    ),
]
TrailRun = Annotated[
    Path | None,
    typer.Argument(
        metavar="RUN|EXPORT",
        help="A session by name or run folder, a folder of requested reviews, or an export. The newest session "
        "without it.",
        autocompletion=complete_run,
        show_default=False,
    ),
]
RequiredTrailRun = Annotated[
    Path,
    typer.Argument(
        metavar="RUN|EXPORT",
        help="A session by name or run folder, a folder of requested reviews, or an export; - for the newest session.",
        autocompletion=complete_run,
    ),
]
PodName = Annotated[str, typer.Argument(help="Name of the session.")]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]
Profile = Annotated[str | None, typer.Option("--profile", help="Which of the spec's profiles; its own by default.")]
SPEC_FILE = "Spec file; or a folder, for its experiment.yaml; or the name of a shipped spec"
HERE = "."
"""The folder one is in."""
SpecName = Annotated[
    str,
    typer.Argument(metavar="SPEC", help=f"{SPEC_FILE}.", autocompletion=complete_spec, show_default="this folder"),
]
SessionName = Annotated[str | None, typer.Option("--name", help="Name of the session; the spec's name by default.")]
Answer = Literal["retry", "approve", "stop"]
AnswerReason = Annotated[str, typer.Option("--reason", help="Why; recorded in the trail. Needed with --answer.")]
By = Annotated[str | None, typer.Option("--by", help="Who decides this; your user name by default.")]


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with an argument or option for each field of its dataclass parameters, in their place."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if is_dataclass(parameter.annotation)
    }
    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        hints = get_type_hints(groups[name], include_extras=True) if name in groups else {}
        for field in fields(groups[name]) if hints else ():
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            parameters.append(parameter.replace(name=field.name, annotation=hints[field.name], default=default))
        parameters += [] if hints else [parameter]

    spread_out = signature.replace(parameters=parameters)

    @wraps(command)
    def wrapper(*arguments: Any, **named: Any) -> None:
        bound = spread_out.bind(*arguments, **named)
        bound.apply_defaults()
        values = bound.arguments
        for name, kind in groups.items():
            values[name] = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
        command(**values)

    vars(wrapper)["__signature__"] = spread_out
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


def need_reason(answer: Answer | None, reason: str) -> None:
    """Raise UserError for an answer without a reason."""
    if answer and not reason:
        raise UserError("an answer needs a reason", hint='for example --reason "the first job ran out of memory"')


def chosen(path: Path | None, runs: Path) -> Path:
    """Return the run folder that a person means: by name, by path, or the newest of ``runs``, which is then named.

    Raises:
        UserError: the newest session is requested, and none exists.
    """
    if path is not None and path != NEWEST:
        return run_folder(path, runs)
    # Slow: reads trails, or a database.
    from sessions.commands.output import say
    from sessions.pages.report.session_list import newest

    run = newest(runs)
    say(f"session {run.name}, the newest in {runs}")
    return run
