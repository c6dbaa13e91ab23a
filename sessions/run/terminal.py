"""Masks secrets in everything a command prints, line by line or when it is flushed."""

from __future__ import annotations

import io
import sys
from typing import IO, Any

from specs.system.masking import current
from specs.system.text import one_line


class MaskedStream(io.TextIOBase):
    """A text stream that writes to another one without secrets."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._line = ""

    def write(self, text: str) -> int:
        """Take a text, and write its whole lines at once."""
        whole, newline, rest = (self._line + text).rpartition("\n")
        self._line = rest
        if newline:
            self._stream.write(current().text(whole + newline))
        return len(text)

    def flush(self) -> None:
        """Write an unfinished line, as before a question."""
        line, self._line = self._line, ""
        self._stream.write(current().text(line))
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the stream itself, such as its encoding."""
        return getattr(self._stream, name)

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._stream.fileno()

    def writable(self) -> bool:
        """Return that it can be written."""
        return True


def mask_output() -> None:
    """Mask the output of this process, tracebacks included."""
    sys.stdout, sys.stderr = MaskedStream(sys.stdout), MaskedStream(sys.stderr)


def masked_line(text: object, limit: int) -> str:
    """Return untrusted text as one printable line, masked first because a line end may split a secret."""
    return one_line(current().text(str(text)), limit)
