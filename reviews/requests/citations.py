"""Looks up whether the files that were read hold the lines and quotes an answer points at.

A quote on the stated lines is taken. A quote that occurs exactly once elsewhere in the file is moved there and marked;
any other does not resolve, and the caller drops it. White space does not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from specs.trail.requested_review import Citation, ReadFile, RequestReading

SHORTEST_QUOTE = 4
"""Fewer visible characters occur everywhere, unless they are the whole line."""
SHORTEST_MOVED = 12
"""A shorter quote may occur elsewhere by chance."""
MAX_QUOTE_CHARACTERS = 400
_NUMBERED = re.compile(r"^[ \t]*\d+\| ?", re.MULTILINE)
"""How lines are numbered where they are shown; a quote may carry the numbers along."""
MAX_LINES = 200
"""A place of more lines than this points at nothing in particular."""


class CitationResolver:
    """The places of one reading."""

    def __init__(self, reading: RequestReading) -> None:
        self._files: dict[str, ReadFile] = {file.name: file for file in reading.files}

    def resolve(self, file: str, first: int, last: int, quote: str) -> Citation | None:
        """Return the place as it is in the file, or None when there is no such place."""
        read_file = self._files.get(file)
        if read_file is None:
            return None
        return self._resolve(read_file, first, last, quote) or self._resolve(
            read_file, first, last, _NUMBERED.sub("", quote)
        )

    def _resolve(self, read_file: ReadFile, first: int, last: int, quote: str) -> Citation | None:
        wanted, lines = _remove_spaces(quote), read_file.lines
        if 1 <= first <= last <= len(lines) and last - first < MAX_LINES:
            there = _remove_spaces("\n".join(lines[first - 1 : last]))
            if wanted and wanted in there and (len(wanted) >= SHORTEST_QUOTE or wanted == there):
                return Citation(file=read_file.name, first_line=first, last_line=last, quote=_cut(quote))
        if len(wanted) >= SHORTEST_MOVED and len(starts := _starts(lines, wanted)) == 1:
            begin, end = starts[0]
            return Citation(file=read_file.name, first_line=begin, last_line=end, quote=_cut(quote), moved=True)
        return None

    def holds(self, place: Citation) -> bool:
        """Return whether a recorded place still resolves to itself."""
        again = self.resolve(place.file, place.first_line, place.last_line, place.quote)
        return again is not None and (again.first_line, again.last_line) == (place.first_line, place.last_line)


def overlap(place: Citation, others: Iterable[Citation]) -> bool:
    """Return whether a place shares a line with one of the others."""
    return any(
        place.file == other.file and place.first_line <= other.last_line and other.first_line <= place.last_line
        for other in others
    )


def _starts(lines: list[str], wanted: str) -> list[tuple[int, int]]:
    """Return the first and last line of the first two occurrences of a quote."""
    squeezed = [_remove_spaces(line) for line in lines]
    owner = [number for number, text in enumerate(squeezed, 1) for _ in text]
    whole = "".join(squeezed)
    pairs: list[tuple[int, int]] = []
    at = whole.find(wanted)
    while at >= 0 and len(pairs) < 2:
        pairs.append((owner[at], owner[at + len(wanted) - 1]))
        at = whole.find(wanted, at + 1)
    return pairs


def _remove_spaces(text: str) -> str:
    return "".join(text.split())


def _cut(quote: str) -> str:
    """Return a quote short enough to show; the shortened quote still resolves."""
    return quote.strip()[:MAX_QUOTE_CHARACTERS].strip()
