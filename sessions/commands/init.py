"""`peergate init`: a folder with everything an experiment needs."""

from __future__ import annotations

import re
from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

import typer

from reviews.trail.chain.store import write_durably
from sessions.commands.options import Json
from sessions.commands.output import print_json, print_line
from sessions.run.run_layout import session_name
from specs.data.columns import Selection
from specs.system.errors import UserError
from specs.system.regular_files import read_regular

app = typer.Typer()


@app.command("init")
def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where to write it; created if it does not exist.")
    ] = Path(),
    template: Annotated[
        Literal["sft", "dpo", "script", "trl", "evaluate", "cai", "agent", "composer"] | None,
        typer.Option("--template", help="What it does; by default what fits the data, sft without any."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Your rows: JSON lines, CSV, Parquet or a saved dataset. Sample rows by default."),
    ] = None,
    verifier: Annotated[
        Path | None,
        typer.Option("--verifier", help="Your verify.py; without it an answer must equal the row's answer."),
    ] = None,
    columns: Annotated[
        str,
        typer.Option(
            "--columns",
            metavar="NAME=COLUMN,…",
            help="Names of your columns: prompt=question,completion=answer; prompt=context+question joins two.",
        ),
    ] = "",
    drop: Annotated[
        str, typer.Option("--drop", metavar="NAME,…", help="Columns, or keys of messages, to pass over on purpose.")
    ] = "",
    model: Annotated[
        str, typer.Option("--model", help="path:FOLDER or hub:OWNER/NAME; the small embedded model by default.")
    ] = "",
    against: Annotated[
        str, typer.Option("--against", help="With --template evaluate: the model to compare with.")
    ] = "",
    sessions: Annotated[
        Path | None,
        typer.Option("--sessions", help="With --template composer: session files of Claude Code, or a folder of them."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="The experiment's name; that of the folder by default.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a new experiment: a spec, its data in two parts, a verifier and a page on what to do next.

    It chooses the held-out items and a minimum effect that this number of items can detect, lists the columns it
    ignores, and runs the design gate on the result before writing it. `peergate start` works at once.

    Exit codes: 0 written; 2 a file already exists or the data do not fit, and nothing was written.
    """
    if against and template != "evaluate":
        raise UserError("only applies to a comparison of two models", where="--against", hint="--template evaluate")
    if (columns or drop) and data is None:
        raise UserError("are for your own rows", where="--columns and --drop", hint="--data FILE")
    # Slow: the power of the test needs scipy.
    from sessions.commands.starters.self_check import require_accepted
    from sessions.commands.starters.starter import SMALL, make_starter, source_of

    named = session_name(name, _name_of(folder))
    first = source_of(model, folder, "--model") if model else SMALL
    other = source_of(against, folder, "--against") if against else SMALL
    if template == "evaluate" and other.source == first.source:
        # Its last gate would reject it: `parity.models`.
        message = "template evaluate compares two models, and the other one is missing or the same"
        raise UserError(
            message, where="--against", hint="--against path:FOLDER, such as the model of an earlier session"
        )
    made = make_starter(named, template, data, verifier, first, other, sessions, _selection(columns, drop))
    texts = [text for text in made.files if (folder / text).exists() and not _same(folder / text, made.files[text])]
    if texts:
        hint = "name another folder: peergate init DIR"
        raise UserError(f"{', '.join(texts)} would be overwritten; nothing was written", where=str(folder), hint=hint)
    reported_texts = [*made.choices, *require_accepted(made.files, folder, data)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in made.files.items():
            write_durably(folder / file, text)
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=str(folder)) from error
    if as_json:
        print_json({"folder": str(folder), "files": sorted(made.files), "chosen": reported_texts})
        return
    print_line(f"{folder}: {', '.join(sorted(made.files))}")
    for line in reported_texts:
        print_line(f"  {line}")
    print_line(f"next: peergate start {quote(str(folder))}" if folder.name else "next: peergate start")


def _selection(columns: str, drop: str) -> Selection:
    """Return what the options say of columns; raises UserError for text of another form."""
    named: dict[str, str | tuple[str, ...]] = {}
    for part in filter(None, map(str.strip, columns.split(","))):
        name, equals, sources = (text.strip() for text in part.partition("="))
        every = tuple(text.strip() for text in sources.split("+"))
        if not name or not equals or not all(every):
            hint = "--columns prompt=question,completion=answer; --columns prompt=context+question joins two"
            raise UserError(f"invalid mapping '{part}'", where="--columns", hint=hint)
        named[name] = every[0] if len(every) == 1 else every
    return Selection(named, tuple(filter(None, map(str.strip, drop.split(",")))))


def _same(path: Path, text: bytes) -> bool:
    """Return whether a file holds this already: a person's own verifier stays where it is."""
    return path.is_file() and read_regular(path) == text


def _name_of(folder: Path) -> str:
    text = re.sub(r"[^a-z0-9_]+", "_", folder.resolve().name.lower()).strip("_")
    return text[:40] if re.match(r"[a-z]", text) else "experiment"
