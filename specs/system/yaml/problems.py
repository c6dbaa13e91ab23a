"""What is wrong at which key, before it has a line and column; with suggestions for slips of the pen."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import NamedTuple

Loc = tuple[str | int, ...]
"""The way to a value: keys and list indices from the top of the file."""

MAX_CHARACTERS = 1000


class TextPosition(NamedTuple):
    """A 1-based line and column."""

    line: int
    column: int


@dataclass(frozen=True)
class LintProblem:
    """One rule broken at ``loc``."""

    loc: Loc
    message: str
    hint: str = ""
    place: TextPosition | None = field(default=None, kw_only=True)
    """Where it is, if its ``loc`` does not say so."""


def format_loc(loc: Loc) -> str:
    """Write a place as a person would: ``stages[2].gate.criteria[0].metric``."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if re.fullmatch(r"[\w-]+", part) else repr(part))
    return text


def printable(text: str) -> str:
    """Make text from a file safe to show: control characters escaped, and cut when it is too long."""
    displayed_text = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text[:MAX_CHARACTERS])
    return displayed_text if len(text) <= MAX_CHARACTERS else f"{displayed_text}..."


def closest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known word most like ``word``, or None if none is similar."""
    close_matches = get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return close_matches[0] if close_matches else None


def suggest(word: str, known: Iterable[str], what: str = "known") -> str:
    """Return "did you mean 'x'?" or, without a likely candidate, the list of what there is."""
    names = list(known)
    match = closest(word, names)
    if match:
        return f"did you mean '{match}'?"
    return f"{what}: {', '.join(names)}" if names else f"{what}: none"
