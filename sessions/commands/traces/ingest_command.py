"""`peergate traces ingest`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from reviews.trail.chain.store import write_durably
from sessions.commands.options import Json
from sessions.commands.output import print_json, print_line, print_table, say
from sessions.run.disk_errors import telling_no_place
from specs.system.errors import UserError
from specs.system.masking import current
from specs.traces.turn import Account
from training.rules.traces.ingest import ingest
from training.rules.traces.trace_folder import build_folder_files

_QUIET_S = 2.0

app = typer.Typer()


@app.command("ingest")
def ingest_paths(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Session files, or folders that hold them.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to create.")] = Path("traces"),
    as_json: Json = False,
) -> None:
    """Read session files of Claude Code into turns and states.

    Every record is used, or skipped with a reason; `account.json` says which lines. Secrets are masked before anything
    is written. A state is an answer of the model with all that it had before it. Exit codes: 0 written; 2 a path is
    missing, holds no answer of a model, or DIR already exists, and nothing was written.
    """
    if out.exists():
        raise UserError("already exists; nothing was written", where=str(out), hint="--out DIR names another folder")
    result = ingest(paths, current(), _Progress())
    with telling_no_place(out):
        for name, data in build_folder_files(result).items():
            write_durably(out / name, data)
    if as_json:
        print_json({"folder": str(out)} | result.account.model_dump(mode="json", exclude={"files"}))
        return
    print_account(result.account)
    print_line(f"{out}: turns.jsonl, account.json")
    print_line(f"next: peergate traces show {out}")


class _Progress:
    """Names the file that is read, if reading takes longer than two seconds."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _QUIET_S

    def __call__(self, number: int, of: int, path: Path) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _QUIET_S
            say(f"file {number} of {of}: {path.name}")


def print_account(account: Account) -> None:
    """Print what became of all records, for a person."""
    rows = [("used in turns", str(account.used))]
    rows += [(f"skipped: {reason}", str(count)) for reason, count in account.skipped.items()]
    rows += [("all", str(account.records))]
    print_table(("records", "lines"), rows)
    print_line()
    for file, reason in account.left_aside.items():
        print_line(f"not read: {file}: {reason}")
    if replaced := [file_account.file for file_account in account.files if file_account.replaced_bytes]:
        print_line(f"not UTF-8, bytes replaced: {', '.join(replaced)}")
    if account.opaque:
        blocks = ", ".join(f"{count} {kind}" for kind, count in account.opaque.items())
        print_line(f"left out of answers, neither text nor call: {blocks}")
    print_line(
        f"{account.states} states in {len(account.files)} files; {account.branches} branches, "
        f"{account.compactions} compactions; {account.calls} calls of tools, {account.unanswered} without a result, "
        f"{account.orphans} results without a call; {account.secrets} secrets masked"
    )
