"""What a data file is registered as: the bytes that jobs, checks and audits read, whatever form the file has."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from specs.data.columns import NO_SELECTION, Selection
from specs.data.conversion import ITEM, convert, lines_of
from specs.data.tables import read_table
from specs.data.transcripts import pack_transcripts
from specs.stages.base.artifacts import As, Item, Learned
from specs.system.errors import Problem, SpecError
from specs.system.regular_files import read_regular

_BLANK_END = re.compile(rb"\n\s*\Z")
OF_ITEM = 4
"""Fields of an item, of five, from which on a row is taken for one: what it lacks is then told."""


class RegisteredData(NamedTuple):
    """A data file as a session registers it."""

    row_kind: As
    data: bytes
    """One JSON object a line."""
    rows: int
    turns: bool = False
    """Whether a row has turns before its prompt."""
    notes: tuple[str, ...] = ()
    """What of the file is ignored, left out or read otherwise, in words."""


def read_registered(
    path: Path, current: As | None, learned: Learned = "last", selection: Selection = NO_SELECTION
) -> RegisteredData | list[Problem]:
    """Return a data file in its registered form, or what is wrong with its rows; raises OSError.

    A file of items in Peergate's own form is registered byte by byte; its lines are checked where a spec is loaded.
    """
    if current in (None, "items") and selection == NO_SELECTION and (raw := own_form(path)) is not None:
        return RegisteredData("items", raw, len(raw.removesuffix(b"\n").split(b"\n")), _has_turns(raw))
    if current == "transcripts":
        if selection != NO_SELECTION:
            return [Problem(str(path), 1, 1, "", "transcripts have no columns", "remove `columns` and `drop`")]
        rows = pack_transcripts(path)
        wrong = [row for row in rows if isinstance(row, Problem)]
        made = [row for row in rows if isinstance(row, Item)]
        return wrong or RegisteredData("transcripts", lines_of(made), len(made))
    table = read_table(path)
    if table.problems:
        return table.problems
    result = convert(path, table.rows, current, learned, selection)
    if result.problems:
        return result.problems
    turns = any(getattr(row, "before", ()) for row in result.rows)
    return RegisteredData(
        result.row_kind, lines_of(result.rows), len(result.rows), turns, (*table.notes, *result.notes)
    )


def _has_turns(raw: bytes) -> bool:
    for line in raw.split(b"\n") if b'"before"' in raw else ():
        with suppress(ValueError, RecursionError):
            values = json.loads(line)
            if isinstance(values, dict) and values.get("before"):
                return True
    return False


def own_form(path: Path) -> bytes | None:
    """Return the bytes of a file of JSON lines whose first object is an item in Peergate's own form; else None."""
    if path.is_dir() or path.suffix in (".csv", ".tsv", ".parquet"):
        return None
    # Editors and exports leave blank lines at the end.
    raw = _BLANK_END.sub(b"\n", read_regular(path))
    for line in raw.split(b"\n"):
        with suppress(ValueError, RecursionError):
            values = json.loads(line)
            return raw if isinstance(values, dict) and len(ITEM & set(values)) >= OF_ITEM else None
    return None


def registered_data(
    path: Path, current: As | None, learned: Learned = "last", selection: Selection = NO_SELECTION
) -> bytes:
    """Return the registered bytes of a data file; raises SpecError with every problem, or OSError."""
    problems = read_registered(path, current, learned, selection)
    if isinstance(problems, list):
        raise SpecError(problems)
    return problems.data
