"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from specs.errors import UserError

DEFAULT_RUNS = Path("runs")

Runs = Annotated[Path, typer.Option("--runs", help="Folder that holds the run folders.", show_default=True)]
Name = Annotated[str, typer.Argument(help="Name of the session.")]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]
RunPath = Annotated[Path, typer.Argument(help="Run folder of a session, or its name under ./runs.")]
Profile = Annotated[str | None, typer.Option("--profile", help="Which of the spec's profiles; its own by default.")]
SpecName = Annotated[str, typer.Argument(help="Spec file, or the name of a shipped spec.")]
SessionName = Annotated[str | None, typer.Option("--name", help="Name of the session; the spec's name by default.")]
Answer = Literal["retry", "approve", "stop"]
AnswerReason = Annotated[str, typer.Option("--reason", help="Why; recorded in the trail. Needed with --answer.")]
By = Annotated[str | None, typer.Option("--by", help="Who decides this; your user name by default.")]
TrailPath = Annotated[
    Path, typer.Argument(metavar="RUN|EXPORT", help="Run folder, its name under ./runs, or an export.")
]


def need_reason(answer: Answer | None, reason: str) -> None:
    """Refuse an answer without a reason.

    Raises:
        UserError: there is an answer and no reason.
    """
    if answer and not reason:
        raise UserError("an answer needs a reason", hint='for example --reason "the first job ran out of memory"')


def below(runs: Path) -> str:
    """Return the option that names the folder of runs; nothing for the default."""
    return "" if runs == DEFAULT_RUNS else f" --runs {runs}"
