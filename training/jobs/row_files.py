"""Raw rows as files that grow by whole groups, so that an interrupted stage resumes after the last whole group.

A group is synced before the next one begins; an unfinished group is dropped and repeated. Groups depend only on the
groups before them, so the rows come out the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from specs.system.digests import Contract
from specs.system.regular_files import open_regular

Row = TypeVar("Row", bound=Contract)


def read_rows(path: Path, model: type[Row]) -> list[Row]:
    """Return the rows of a file of one JSON object a line; raises pydantic.ValidationError if one is no such row."""
    with open_regular(path) as handle:
        return [model.model_validate_json(line) for line in handle if line.strip()]


def _lines(path: Path) -> list[bytes]:
    if not path.is_file():
        return []
    with open_regular(path) as handle:
        return handle.read().splitlines(keepends=True)


def lines_of(rows: Iterable[Contract]) -> bytes:
    """Return rows as a file holds them, one JSON object a line."""
    return b"".join(row.model_dump_json().encode() + b"\n" for row in rows)


def write_durably(path: Path, data: bytes) -> None:
    """Write a file completely or not at all."""
    partial = path.with_name(f".{path.name}")
    with partial.open("wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())
    partial.replace(path)


class GroupedRows(Generic[Row]):
    """The rows of one shard, group after group."""

    def __init__(self, path: Path, model: type[Row]) -> None:
        """Read the whole groups of the file and cut off anything after them."""
        self._path = path
        self.groups: list[list[Row]] = []
        pending: list[Row] = []
        whole = place = 0
        for line in _lines(path):
            place += len(line)
            if line == b"\n":
                self.groups.append(pending)
                pending, whole = [], place
            elif line.endswith(b"\n"):
                pending.append(model.model_validate_json(line))
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as handle:
            handle.truncate(whole)

    def add(self, rows: Sequence[Row]) -> None:
        """Append a group durably: its rows, then an empty line."""
        with self._path.open("ab") as handle:
            handle.write(lines_of(rows) + b"\n")
            handle.flush()
            os.fsync(handle.fileno())
        self.groups.append(list(rows))

    def rows(self) -> list[Row]:
        """Return the rows of all groups in order."""
        return [row for group in self.groups for row in group]
