"""The folder that ``peergate traces ingest`` writes: ``turns.jsonl``, and ``account.json``, which names its digest."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from specs.system.digests import digest_bytes
from specs.system.errors import UserError
from specs.system.regular_files import read_regular
from specs.traces.turn import Account, TraceTurn
from training.rules.traces.ingest import IngestResult

TURNS, ACCOUNT = "turns.jsonl", "account.json"


class Traces(NamedTuple):
    """What a folder holds: turns by id, and what became of every record."""

    turns: dict[str, TraceTurn]
    account: Account


def build_folder_files(result: IngestResult) -> dict[str, bytes]:
    """Return the files of a folder of traces, in the order in which they are to be written."""
    turns = "".join(f"{turn.model_dump_json()}\n" for turn in result.turns).encode()
    account = result.account.model_copy(update={"turns": digest_bytes(turns)})
    return {TURNS: turns, ACCOUNT: account.model_dump_json(indent=1).encode() + b"\n"}


def read_traces(folder: Path) -> Traces:
    """Read a folder of traces.

    Raises:
        UserError: it is not such a folder, a file in it has changed, or a turn names an unknown turn.
    """
    hint = f"peergate traces ingest PATH --out {folder}"
    try:
        data, account = read_regular(folder / TURNS), read_regular(folder / ACCOUNT)
    except OSError as error:
        raise UserError(f"holds no traces: {error.strerror}", where=str(folder), hint=hint) from error
    try:
        stated = Account.model_validate_json(account)
        turns = {turn.id: turn for turn in map(TraceTurn.model_validate_json, data.splitlines())}
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(value) for value in first["loc"])
        raise UserError(
            f"is not in the form of traces: {where}: {first['msg']}", where=str(folder), hint=hint
        ) from None
    if digest_bytes(data) != stated.turns:
        raise UserError(f"is not the file that {ACCOUNT} names", where=str(folder / TURNS), hint=hint)
    if lost := next((turn for turn in turns.values() if turn.parent is not None and turn.parent not in turns), None):
        raise UserError(f"turn {lost.id} follows {lost.parent}, which is missing", where=str(folder / TURNS), hint=hint)
    return Traces(turns, stated)
