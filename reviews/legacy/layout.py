"""The lines of a review as they are read: tables, ruled headings and struck words made plain, each with its number."""

from __future__ import annotations

import re
from typing import NamedTuple

from reviews.legacy.markup import is_markup, seen_lines
from reviews.legacy.zones import Zone, zones_of

LONGEST_LINE = 8000
_BLOB = re.compile(r"[^\s]{400,}")
_TAG = re.compile(
    r"(?i)</?(?:b|strong|i|em|br|p|span|u|font|sup|sub|details|summary|center|div|small|big|mark|ins"
    r"|kbd)(?:\s[^<>]{0,200})?/?>"
)
_STRUCK = re.compile(r"(?is)~~(?=\S)[^~]{1,2000}~~|<(del|s|strike)>(?:(?!</\1>).){0,2000}</\1>")
_RULE = re.compile(r"\s*(?:={3,}|-{3,})\s*$")
_SEPARATOR = re.compile(r"^\s*\|?\s*:?-{2,}:?\s*(?:\|\s*:?-{2,}:?\s*)*\|?\s*$")
_VERDICT_COLUMN = re.compile(
    r"(?i)^\W*(?:(?:final|gate|my|overall)\s+)?(?:decision|verdict|approval|outcome|sign-?off|go\s*/\s*no-?go)\W*$"
)
_REMARK_COLUMN = re.compile(r"(?i)^\W*(?:reason\w*|notes?|comments?|confidence|why|rationale|date|remarks?)\W*$")


class Page(NamedTuple):
    """A review, line by line. ``numbers`` and ``as_given`` say where in the file a line stands, and how."""

    lines: list[str]
    numbers: list[int]
    as_given: list[str]
    zones: list[Zone]
    open_fence: bool
    too_long: int | None
    """The number of a line that is too long to be read."""
    shape: str


def page_of(text: str, numbers: list[int] | None = None) -> Page:
    """Return a text, made plain already, as a page.

    Args:
        text: the words of a review.
        numbers: the line of the file that each line of the text stands in; they are counted when this is left out.
    """
    as_given = text.split("\n")
    shape = ""
    if numbers is None and is_markup(text):
        seen = seen_lines(text)
        numbers, as_given, shape = [number for number, _ in seen], [line for _, line in seen], "html"
    numbers = numbers or list(range(1, len(as_given) + 1))
    too_long = next((numbers[at] for at, line in enumerate(as_given) if len(_BLOB.sub("", line)) > LONGEST_LINE), None)
    lines = _unstruck([_tidy(line) for line in as_given])
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    lines = _ruled([line[margin:] for line in lines])
    zoned = zones_of(lines)
    lines, tabled = _tables(lines)
    shape = shape or ("table" if tabled else "")
    return Page(lines, numbers, as_given, zoned.zones, zoned.open_fence, too_long, shape)


def _tidy(line: str) -> str:
    """Return a line with its indentation and single spaces; what is too long for a word is left out."""
    line = _BLOB.sub("\u00a4", line) if len(line) > 400 else line
    if len(line) > LONGEST_LINE:
        return ""
    text = line.lstrip()
    indent = line[: len(line) - len(text)].expandtabs(4)
    return " " * min(len(indent), 8) + re.sub(r"\s+", " ", _TAG.sub(" ", text) if "<" in text else text).strip()


def _unstruck(lines: list[str]) -> list[str]:
    """Blank out struck words, also over several lines."""
    text = "\n".join(lines)
    if "~~" not in text and "</" not in text:
        return lines
    return _STRUCK.sub(lambda hit: re.sub(r"[^\n]", "\u00a4", hit.group()), text).split("\n")


def _ruled(lines: list[str]) -> list[str]:
    """Turn "Decision" over a line of dashes into a heading."""
    for at in range(1, len(lines)):
        above = lines[at - 1]
        before = lines[at - 2] if at > 1 else ""
        if (
            not before.strip()
            and _RULE.match(lines[at])
            and 0 < len(above.strip()) <= 80
            and above[0] not in "#|->* \u00a4"
        ):
            lines[at - 1], lines[at] = "## " + above, ""
    return lines


def _tables(lines: list[str]) -> tuple[list[str], bool]:
    """Turn rows of tables that hold a verdict into "key: value"; other rows stay as they are."""
    found = False
    at = 0
    while at < len(lines):
        end = at
        while end < len(lines) and lines[end].lstrip().startswith("|"):
            end += 1
        if end > at:
            lines[at:end] = _table(lines[at:end])
            found = True
        at = max(end, at + 1)
    return lines, found


def _table(rows: list[str]) -> list[str]:
    cells = [[cell.strip() for cell in row.strip().strip("|").split("|")][:40] for row in rows]
    bare = [re.sub(r"[*_`]", "", cell) for cell in cells[0]]
    headed = len(rows) > 1 and _SEPARATOR.match(rows[1]) is not None
    column = next((at for at, cell in enumerate(bare) if _VERDICT_COLUMN.match(cell)), None) if headed else None
    if headed and column == 0 and len(bare) == 2 and not _REMARK_COLUMN.match(bare[1]):
        # The heading of the table is its first pair: | Decision | GO |
        headed, column = False, None
    told = list(rows)
    for row, values in enumerate(cells):
        if _SEPARATOR.match(rows[row]) or (headed and row == 0):
            told[row] = ""
        elif column is not None and column < len(values):
            alone = len(rows) == 3 and all(_REMARK_COLUMN.match(one) for at, one in enumerate(bare) if at != column)
            told[row] = f"{bare[column]}: {values[column]}" if alone else f"row {values[0]}: {values[column]}"
        elif len(values) == 2:
            told[row] = f"{values[0]}: {values[1]}"
    return told
