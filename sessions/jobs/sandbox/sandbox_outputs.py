"""Writes a sandbox's untrusted output as regular files, under checked names, in a folder of this process alone."""

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
_SHORT = "its outputs were cut short"


class OutputStreamError(Exception):
    """The stream cannot be kept: it is too long, cut short, or names an unsafe path."""


class CutShort(OutputStreamError):
    """The stream ended too early."""


class ReceivedFiles(NamedTuple):
    """What arrived; ``left_out`` counts links, pipes and devices, as the sandbox reported."""

    files: int
    bytes: int
    left_out: int


def receive(stream: BinaryIO, folder: Path, most: int) -> ReceivedFiles:
    """Write a stream into a folder: ``rows.jsonl`` directly, everything else below ``files``.

    ``training/jobs/recipes/sandbox_script.py`` writes the stream; it may bring ``most`` bytes in all.

    Raises:
        Refused: with the reason.
        OSError: the disk is full, or two names cannot both be files.
    """
    count = total = 0
    folders: set[str] = set()
    while True:
        header = _header(stream)
        if "left_out" in header:
            left_out = _size(header["left_out"])
            if len(header) > 1 or stream.read(1):
                raise OutputStreamError("its outputs do not end as they should")
            return ReceivedFiles(count, total, left_out)
        try:
            parts = safe_parts(header.get("path"), DEPTH)
        except ValueError as error:
            raise OutputStreamError(f"it left a file {error}") from error
        size = _size(header.get("size"))
        count, total = count + 1, total + size
        folders.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
        if count + len(folders) > MOST_FILES:
            raise OutputStreamError(f"it left more than {MOST_FILES} files and folders")
        if total > most:
            raise OutputStreamError(f"it left {total} bytes or more, the limit is {most}")
        target = folder / ROWS if parts == [ROWS] else folder.joinpath("files", *parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            _copy(stream, file, size)


def _header(stream: BinaryIO) -> dict[str, Any]:
    line = stream.readline(HEADER_BYTES)
    if not line:
        raise CutShort(_SHORT)
    header = None
    with suppress(ValueError, RecursionError):
        header = json.loads(line)
    if not isinstance(header, dict) or not line.endswith(b"\n"):
        raise OutputStreamError("its outputs are not a list of files")
    return header


def _size(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise OutputStreamError("its outputs hold a file without a size")
    return value


def _copy(stream: BinaryIO, file: BinaryIO, size: int) -> None:
    while size > 0:
        piece = stream.read(min(size, 1 << 20))
        if not piece:
            raise CutShort(_SHORT)
        file.write(piece)
        size -= len(piece)
