"""What a recipe sends from its sandbox, taken over as files. Every byte of the stream may be hostile.

Only regular files come of it, under names that were checked, in a folder that only this process writes.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from sessions.jobs.transfer.received_files import safe_parts

ROWS = "rows.jsonl"
MOST_FILES = 10_000
HEADER_BYTES = 4096
DEPTH = 8


class Refused(Exception):
    """What was sent cannot be kept: too much, cut short, or under a name that no file should have."""


class CutShort(Refused):
    """Whoever sent it ended too early."""


class Received(NamedTuple):
    """What arrived."""

    files: int
    bytes: int
    left_out: int
    """Links, pipes and devices, by the sandbox's own count."""


def receive(stream: BinaryIO, folder: Path, most: int) -> Received:
    """Write what a stream holds into a folder: ``rows.jsonl`` beside it, everything else below ``files``.

    Args:
        stream: as ``training/jobs/recipes/sandbox_script.py`` writes it.
        folder: an empty folder with an empty ``files`` in it.
        most: how many bytes may arrive in all.

    Raises:
        Refused: with what is wrong.
        OSError: the disk is full, or two names cannot both be files.
    """
    count = total = 0
    folders: set[str] = set()
    while True:
        header = _header(stream)
        if "left_out" in header:
            left_out = _size(header["left_out"])
            if len(header) > 1 or stream.read(1):
                raise Refused("what it left does not end as it should")
            return Received(count, total, left_out)
        try:
            parts = safe_parts(header.get("path"), DEPTH)
        except ValueError as error:
            raise Refused(f"it left a file {error}") from error
        size = _size(header.get("size"))
        count, total = count + 1, total + size
        folders.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
        if count + len(folders) > MOST_FILES:
            raise Refused(f"it left more than {MOST_FILES} files and folders")
        if total > most:
            raise Refused(f"it left {total} bytes or more, allowed are {most}")
        target = folder / ROWS if parts == [ROWS] else folder.joinpath("files", *parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            _copy(stream, file, size)


def _header(stream: BinaryIO) -> dict[str, Any]:
    line = stream.readline(HEADER_BYTES)
    if not line:
        raise CutShort("what it left was cut short")
    header = None
    with suppress(ValueError, RecursionError):
        header = json.loads(line)
    if not isinstance(header, dict) or not line.endswith(b"\n"):
        raise Refused("what it left does not have the form of files")
    return header


def _size(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise Refused("what it left has a file without a size")
    return value


def _copy(stream: BinaryIO, file: BinaryIO, size: int) -> None:
    while size > 0:
        piece = stream.read(min(size, 1 << 20))
        if not piece:
            raise CutShort("what it left was cut short")
        file.write(piece)
        size -= len(piece)
