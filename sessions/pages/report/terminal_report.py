"""The Markdown of a report as text for a terminal: no HTML, no pictures, lines that fit."""

from __future__ import annotations

import html
import re
import shutil
import sys

from specs.system import markdown

WIDEST = 100
_PICTURE = re.compile(r"!\[[^\]]*\]\([^)]*\) *\n?")
_FOLDED = re.compile(r"<details><summary>(.*?)</summary>(.*?)</details>", re.DOTALL)
_TAG = re.compile(r"</?(?:b|details|summary)>")
_BREAK = re.compile(r"<br> *")
_LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\((?!\w+:)[^)\n]*\)")


def print_report(text: str) -> None:
    """Print a report in Markdown, as wide as the terminal and at most :data:`WIDEST` columns."""
    # Slow to import, and only needed here.
    from rich.console import Console
    from rich.markdown import Markdown

    width = min(WIDEST, shutil.get_terminal_size().columns)
    console = Console(file=sys.stdout, width=width, highlight=False)  # type: ignore[arg-type]
    console.print(Markdown(without_html(text), hyperlinks=False))


def without_html(text: str) -> str:
    """Return the Markdown without pictures, relative links and HTML: what was folded is a paragraph and a list."""
    text = _LINK.sub(r"\1", _PICTURE.sub("", text))
    return _FOLDED.sub(_unfold, text)


def _unfold(match: re.Match[str]) -> str:
    points = [_words(part) for part in _BREAK.split(match[2]) if part.strip()]
    return f"\n**{_words(match[1])}**\n\n" + "".join(f"- {point}\n" for point in points)


def _words(part: str) -> str:
    """Return a piece of HTML as Markdown that shows the same words; markup in them has no effect."""
    return str(markdown.line(html.unescape(_TAG.sub("", part)).strip()))
