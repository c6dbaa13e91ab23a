"""Raw rows on their way: a file in the job folder that grows by whole groups, so that a stage that was ended goes on.

A group is written and synced before the next one begins. What a kill left of a group is dropped and written again:
groups depend on nothing but the groups before them, so the rows come out the same.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, TypeVar

from specs.digests import Contract

Row = TypeVar("Row", bound=Contract)


def read_rows(path: Path, model: type[Row]) -> list[Row]:
    """Return the rows of a file of one JSON object a line.

    Raises:
        pydantic.ValidationError: a line is no such row.
    """
    with path.open("rb") as handle:
        return [model.model_validate_json(line) for line in handle if line.strip()]


def write_durably(path: Path, data: bytes) -> None:
    """Write a file that is there as a whole or not at all."""
    partial = path.with_name(f".{path.name}")
    with partial.open("wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())
    partial.replace(path)


class GroupedRows(Generic[Row]):
    """The rows of one shard, group after group."""

    def __init__(self, path: Path, model: type[Row]) -> None:
        """Read the whole groups that are there; anything after them is cut off."""
        self._path, self._model = path, model
        self.groups: list[list[Row]] = []
        whole = 0
        if path.is_file():
            content = path.read_bytes()
            pending: list[Row] = []
            place = 0
            for line in content.splitlines(keepends=True):
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
            handle.write(b"".join(row.model_dump_json().encode() + b"\n" for row in rows) + b"\n")
            handle.flush()
            os.fsync(handle.fileno())
        self.groups.append(list(rows))

    def rows(self) -> list[Row]:
        """Return the rows of all groups in order."""
        return [row for group in self.groups for row in group]
