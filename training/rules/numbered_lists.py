"""Numbered lists: written as the beginning of a prompt, and parsed from the model's continuation.

A prompt ends in the number of the first new item, so the answer begins without it. :func:`parse` gets that number; a
parser that looked for it would lose the first item of every answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

_ITEM = re.compile(r"^[ \t]*(\d{1,4})[.)](?:[ \t]+|$)", re.MULTILINE)
_META = re.compile(
    r"^(?:(?:here (?:are|is)|sure|certainly|of course|below (?:are|is))\b"
    r"|(?:an)?other\b|more\b|next\b|(?:additional|further|new) (?:instructions?|tasks?|questions?|examples?)\b"
    r"|(?:instructions?|tasks?|questions?|examples?|topics?)\s*(?:\d+|list)?\s*[:.]?\s*$"
    r"|(?:instructions?|tasks?|examples?) (?:already used|about|on)\b"
    r"|(?:the )?(?:end|list) of\b|(?:etc|and so on)\b)",
    re.IGNORECASE,
)
_LEAST_WORDS = 3
_MOST_CHARACTERS = 400
_WORDLESS = re.compile(r"[\W\d_]*")

Fate = Literal["candidate", "meta", "short", "long", "cut"]


class ListItem(NamedTuple):
    """One item of a list that a model wrote."""

    number: int
    text: str
    fate: Fate
    """``candidate``, or why it is no instruction; ``cut``: the token limit ended it."""


def render(items: Sequence[str], first: int = 1) -> str:
    """Write items as the lines of a numbered list."""
    return "\n".join(f"{number}. {' '.join(item.split())}" for number, item in enumerate(items, first))


def parse(raw: str, *, first: int, primed: bool, cut: bool) -> tuple[ListItem, ...]:
    """Return the items of a list whose numbers follow each other from ``first``.

    A number out of turn belongs to the text around it, and lines before the first item are skipped. ``primed``: the
    number was at the end of the prompt, so that ``raw`` begins with the item's text. ``cut``: the token limit ended the
    text, and with it the last item.
    """
    text = f"{first}. {raw.lstrip(' ')}" if primed else raw
    starts: list[re.Match[str]] = []
    for match in _ITEM.finditer(text):
        if int(match[1]) == first + len(starts):
            starts.append(match)
    if not starts:
        return ()
    ends = [match.start() for match in starts[1:]] + [len(text)]
    results: list[ListItem] = []
    for number, (match, end) in enumerate(zip(starts, ends, strict=True), first):
        body = " ".join(text[match.end() : end].split())
        is_last = number == first + len(starts) - 1
        results.append(ListItem(number, body, "cut" if cut and is_last else fate_of(body)))
    return tuple(results)


def fate_of(text: str) -> Fate:
    """Return whether a text can be an instruction, or why not."""
    if _META.match(text):
        return "meta"
    if len(text.split()) < _LEAST_WORDS or _WORDLESS.fullmatch(text):
        return "short"
    return "long" if len(text) > _MOST_CHARACTERS else "candidate"
