"""What a command prints, without secrets: stdout and stderr of the process pass one masker.

A text is masked line by line, or when it is flushed; of a private key that is printed in one piece every line is.
"""

from __future__ import annotations

import io
import sys
from typing import IO, Any

from specs.masking import current
from specs.text import one_line


class MaskedStream(io.TextIOBase):
    """A text stream that writes to another one what is left without secrets."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._line = ""

    def write(self, text: str) -> int:
        """Take a text; whole lines of it are written at once."""
        whole, newline, rest = (self._line + text).rpartition("\n")
        self._line = rest
        if newline:
            self._stream.write(current().text(whole + newline))
        return len(text)

    def flush(self) -> None:
        """Write what was begun, as before a question."""
        line, self._line = self._line, ""
        self._stream.write(current().text(line))
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        """Return what the stream itself is asked for: its encoding, its bytes."""
        return getattr(self._stream, name)

    def isatty(self) -> bool:
        """Say whether a person reads it."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._stream.fileno()

    def writable(self) -> bool:
        """Say that it can be written."""
        return True


def mask_output() -> None:
    """Have this process print nothing that is a secret, tracebacks included."""
    sys.stdout, sys.stderr = MaskedStream(sys.stdout), MaskedStream(sys.stderr)


def masked_line(text: object, limit: int) -> str:
    """Return untrusted text as one printable line without secrets; masked first, as a line end may split a secret."""
    return one_line(current().text(str(text)), limit)
