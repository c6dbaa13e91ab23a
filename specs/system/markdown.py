"""Untrusted text in Markdown: a line that is nothing but text, a cell, a code span, or a fenced block it cannot end.

Only what CommonMark and GitHub would take for markup is escaped: reports are also read in a terminal.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any

from specs.system.text import one_line, plain

LINE_CHARACTERS = 4000
CELL_CHARACTERS = 160
_ALWAYS = re.compile(r"[\\`*|~]")
_WHERE_IT_IS_MARKUP = re.compile(
    r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"  # emphasis; not inside a name
    r"|<(?=[A-Za-z/!?])"  # HTML and links in angle brackets
    r"|\](?=[(\[:])|!(?=\[)|\[(?=\^)"  # links, images, definitions and footnotes
    r"|&(?=#?[A-Za-z0-9]+;)"  # entities
    r"|:(?=//)|(?<=www)\."  # links that some readers make of bare addresses
)
_AT_THE_BEGINNING = re.compile(r"[#>]|[-+=](?![0-9.])|[0-9]{1,9}(?=[.)](?:\s|$))|\[(?=[ xX]\])")
_BACKTICKS = re.compile(r"`+")


class Markup(str):
    """Markdown that is shown as it is, made here from untrusted text or written by Peergate."""

    __slots__ = ()


def line(text: object, limit: int = LINE_CHARACTERS) -> Markup:
    """Return one line that Markdown shows as the text it is, at the beginning of a line as well."""
    displayed_text = one_line(text, limit)
    escaped = _WHERE_IT_IS_MARKUP.sub(r"\\\g<0>", _ALWAYS.sub(r"\\\g<0>", displayed_text))
    match = _AT_THE_BEGINNING.match(escaped)
    if match is None:
        return Markup(escaped)
    if match[0].isdigit():
        # A digit cannot be escaped; the mark that makes it a list can.
        return Markup(f"{match[0]}\\{escaped[match.end() :]}")
    return Markup(f"\\{escaped}")


def cell(text: object, limit: int = CELL_CHARACTERS) -> Markup:
    """Return text for a cell of a table; a line end is shown as a slash."""
    displayed_text = plain(str(text), 20 * limit).replace("\n", " / ")
    return line(displayed_text, limit) or Markup("(empty)")


def code(text: object, limit: int = LINE_CHARACTERS) -> Markup:
    """Return a code span. A bar would end the cell of a table it is in, so it is drawn broken."""
    displayed_text = one_line(text, limit).replace("|", "\u00a6")
    fence = "`" * (max((len(run) for run in _BACKTICKS.findall(displayed_text)), default=0) + 1)
    pad = " " if displayed_text.startswith("`") or displayed_text.endswith("`") or not displayed_text else ""
    return Markup(f"{fence}{pad}{displayed_text}{pad}{fence}")


def html(text: object, limit: int = LINE_CHARACTERS) -> Markup:
    """Return text for a block of HTML in Markdown, on one line: a line end would let Markdown in again."""
    return Markup(escape(one_line(text, limit)))


def fence_text(text: str, limit: int) -> Markup:
    """Return a fenced block that the text in it cannot end."""
    displayed_text = plain(text, limit)
    longest = max((len(run) for run in _BACKTICKS.findall(displayed_text)), default=0)
    fence = "`" * max(3, longest + 1)
    return Markup(f"{fence}text\n{displayed_text}\n{fence}")


def finalize(value: Any) -> Any:
    """Return what a template shows of a value: every text is escaped unless it is :class:`Markup`."""
    return value if value is None or isinstance(value, Markup | bool | int | float) else line(value)
