"""What is said over one SSH command: a line of JSON, then as many bytes as it says, in either direction."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, BinaryIO

VERSION = 1
MAX_LINE = 1 << 20


class BadFrame(ValueError):
    """The other side said something that is no frame."""


def line_of(header: Mapping[str, Any], size: int = 0) -> bytes:
    """Return the line before ``size`` bytes."""
    return json.dumps({**header, "bytes": size}, separators=(",", ":")).encode() + b"\n"


def read_line(line: bytes) -> tuple[dict[str, Any], int]:
    """Return the header of a line and how many bytes follow.

    Raises:
        BadFrame: it is none.
    """
    try:
        found = json.loads(line)
        size = found.pop("bytes")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise BadFrame("a line that is no header") from error
    if not isinstance(found, dict) or type(size) is not int or size < 0:
        raise BadFrame("a header without a size")
    return found, size


def read_frame(stream: BinaryIO) -> tuple[dict[str, Any], int] | None:
    """Read a header from a stream; None at its end.

    Raises:
        BadFrame: it is none.
    """
    line = stream.readline(MAX_LINE)
    if not line:
        return None
    if not line.endswith(b"\n"):
        raise BadFrame(f"a line longer than {MAX_LINE} bytes")
    return read_line(line)
