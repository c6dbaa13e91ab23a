"""How commands print: data on stdout, talk on stderr. No untrusted text begins a line."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from sessions.run.terminal import masked_line
from specs.system.errors import PeergateError, SpecError
from specs.system.masking import current
from specs.system.text import block, json_text, plain

SCHEMA_VERSION = 1
LINE_CHARACTERS = 8000
_ERROR_CHARACTERS = 20_000


def print_json(data: dict[str, Any]) -> None:
    """Print one exact JSON object, the schema version first, without a character that a terminal obeys."""
    sys.stdout.write(json_text({"schema_version": SCHEMA_VERSION} | data) + "\n")


def print_line(text: str = "", *, err: bool = False) -> None:
    """Print one line, whatever is in it; spaces stay as they are."""
    line = plain(text, LINE_CHARACTERS).replace("\n", " ").replace("\t", " ")
    print(line, file=sys.stderr if err else sys.stdout, flush=err)


def print_indented(lines: Iterable[str], longest: int) -> None:
    """Print lines that keep their indentation; each is masked and made one line."""
    for line in lines:
        words = line.lstrip(" ")
        print_line(" " * (len(line) - len(words)) + masked_line(words, longest))


def say(text: str) -> None:
    """Print one line of talk, on stderr; untrusted text has been made printable."""
    print_line(text, err=True)


def print_block(text: str, limit: int, indent: str = "") -> None:
    """Print a text that may have several lines, each of them behind a bar."""
    print(block(current().text(text), limit, indent))


def print_table(headers: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print a plain aligned table."""
    texts = [tuple(masked_line(cell, LINE_CHARACTERS) for cell in row) for row in rows]
    widths = [max(len(row[column]) for row in [headers, *texts]) for column in range(len(headers))]
    for row in (headers, tuple("-" * width for width in widths), *texts):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_error(error: PeergateError) -> None:
    """Print an error on stderr: a line for what happened, or for every problem of a file, and a hint."""
    whole = [f"{error.where}: {error.message}" if error.where else error.message]
    first, *more = [str(problem) for problem in error.problems] or [""] if isinstance(error, SpecError) else whole
    print_line(f"peergate: {masked_line(first, _ERROR_CHARACTERS)}", err=True)
    for line in more:
        print_line(masked_line(line, _ERROR_CHARACTERS), err=True)
    if error.hint:
        print_line(f"  {masked_line(error.hint, _ERROR_CHARACTERS)}", err=True)
