"""Reads a transcript line by line: what is not a record is skipped with a reason, nothing raises."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from specs.system.regular_files import open_regular

MOST_BYTES = 64 * 2**20
"""Of one line. A longer one is skipped, and never held in memory whole."""
_BOM = b"\xef\xbb\xbf"

MOST_FILE_BYTES = 1 << 32
"""Of a whole transcript."""


class TranscriptLine(NamedTuple):
    """One line: its record, or why it holds none."""

    number: int
    record: dict[str, Any] | None
    skipped: str
    replaced: bool


def read_lines(path: Path) -> Iterator[TranscriptLine]:
    """Yield every line of a transcript; raises OSError if the file cannot be read."""
    with open_regular(path, MOST_FILE_BYTES) as file:
        number = 0
        while data := file.readline(MOST_BYTES + 1):
            number += 1
            whole = data.endswith(b"\n")
            if len(data) > MOST_BYTES and not whole:
                _skip_line(file)
                yield TranscriptLine(number, None, "line too long", False)
                continue
            yield _read(number, data.removeprefix(_BOM) if number == 1 else data, whole)


def _skip_line(file: Any) -> None:
    while (data := file.readline(2**20)) and not data.endswith(b"\n"):
        pass


def _read(number: int, data: bytes, whole: bool) -> TranscriptLine:
    if not data.strip():
        return TranscriptLine(number, None, "empty line", False)
    try:
        text, replaced = data.decode("utf-8"), False
    except UnicodeDecodeError:
        text, replaced = data.decode("utf-8", "replace"), True
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        # A program that still writes, or was killed, leaves the last line unfinished.
        return TranscriptLine(number, None, "malformed line" if whole else "unfinished last line", replaced)
    if not isinstance(record, dict):
        return TranscriptLine(number, None, "not an object", replaced)
    return TranscriptLine(number, record, "", replaced)
