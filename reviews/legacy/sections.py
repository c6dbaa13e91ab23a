"""Headings of a review with what stands below them: bullets, numbered points, paragraphs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from reviews.legacy.layout import Page
from reviews.legacy.zones import Zone, heading

_ITEM = re.compile(
    r"^(?P<indent>\s*)(?:[-*+\u2022\u25e6\u2013]\s+|(?P<number>\d{1,3})[.)]\s+|(?:Q"
    r"|A)?(?P<q>\d{1,3})[:.)]\s+)(?P<text>\S.*)$"
)
_LABELLED = re.compile(
    r"^\s*(?:[-*+\u2022]\s+)?[^\w\s\"'`(\[]{0,3}\s*(?:\*\*|__)?(?P<title>[A-Za-z][^:*_.?!]{1,60}?)(?:\*\*"
    r"|__)?\s*:\s*(?:\*\*|__)?\s*(?P<rest>.*)$"
)
_NONE = re.compile(
    r"(?i)^[\W_]*(?:none|n/?a|nil|nothing|not\s+applicable|no\s+(?:\w+\s+){0,3}(?:issues?|findings?|blockers?"
    r"|concerns?|conditions?|risks?"
    r"|problems?|changes?|actions?)|no)(?:\s+(?:that\s+matter|found|identified|needed|required|remain(?:ing)?"
    r"|outstanding|at\s+this\s+time"
    r"|to\s+report|beyond.*|of\s+note|known|seen))?[\W_]*$"
)
# A line of a sign and a word or two ("🚨 CRITICAL") is a heading without its marks.
_SIGNED = re.compile(
    r"^\s*[\U0001f6a8\u26a0\U0001f4a1\U0001f534\U0001f7e0\U0001f7e1\U0001f7e2\u2757]+\s*\w+(?:[\s-]\w+){0,2}\s*:?$"
)
_LABEL_WORDS = 4
_BARE = 7
LABEL = 8
"""The level of a label; headings have 1 to 7."""
_MOST = 2000


class Item(NamedTuple):
    """One point: where it begins, its number if it has one, and its words."""

    at: int
    number: int | None
    text: str
    bulleted: bool = True


class Section(NamedTuple):
    """A heading or a label with an open end, and the points below it. ``at`` counts the lines of the page from 0."""

    at: int
    title: str
    level: int
    zone: Zone
    items: list[Item]


def says_none(text: str) -> bool:
    """Say whether a point says that there is none."""
    return _NONE.match(text) is not None


def sections_of(page: Page) -> list[Section]:
    """Return the sections of a page, the words before its first heading as one without a title."""
    now = Section(0, "", 0, "review", [])
    found = [now]
    open_item: tuple[int, int | None, list[str], bool] | None = None

    def close() -> None:
        nonlocal open_item
        if open_item is not None:
            at, number, parts, bulleted = open_item
            now.items.append(Item(at, number, " ".join(parts)[:_MOST], bulleted))
        open_item = None

    gap = False
    for at, (line, zone) in enumerate(zip(page.lines, page.zones, strict=True)):
        if zone == "nobody" or not line.strip():
            gap = gap or not line.strip()
            if not line.strip() and open_item and not open_item[3]:
                close()
            continue
        if gap and not line.startswith(" "):
            # Below an empty line only what is indented belongs to the point above.
            close()
            if now.level == LABEL and _ITEM.match(line) is None:
                # A label speaks for its own paragraph or list.
                now = Section(at, "", LABEL, zone, [])
                found.append(now)
        gap = False
        begun = _begins(line) or _bare_title(page.lines, at)
        if begun:
            close()
            title, level, rest = begun
            now = Section(at, title, level, zone, [])
            found.append(now)
            if rest:
                open_item = (at, None, [rest], False)
            continue
        hit = _ITEM.match(line)
        if hit and (len(hit["indent"]) < 2 or open_item is None or not open_item[3]):
            close()
            number = hit["number"] or hit["q"]
            open_item = (at, int(number) if number else None, [hit["text"]], True)
        elif open_item is None:
            open_item = (at, None, [line.strip()], False)
        else:
            open_item[2].append(line.strip())
    close()
    return found


def _begins(line: str) -> tuple[str, int, str] | None:
    """Return title, level and the rest of a line that opens a section."""
    head = heading(line)
    if head is not None:
        title, colon, rest = head.title.partition(":")
        return (
            (title.strip("*_ "), head.level, rest.strip(" *"))
            if colon and rest.strip()
            else (head.title.strip("*_: "), head.level, "")
        )
    if _SIGNED.match(line):
        return line.strip(), 7, ""
    hit = _LABELLED.match(line)
    if hit and len(hit["title"].split()) <= _LABEL_WORDS and not re.match(r"\s*(?:[-*+\u2022]|\d+[.)])\s", line):
        return hit["title"].strip(), LABEL, hit["rest"].strip(" *")
    return None


def _bare_title(lines: list[str], at: int) -> tuple[str, int, str] | None:
    """Return a short line without marks right above a list, with nothing above it, as a title."""
    line = lines[at].strip()
    alone = at == 0 or not lines[at - 1].strip()
    listed = at + 1 < len(lines) and _ITEM.match(lines[at + 1]) is not None
    if alone and listed and len(line.split()) <= _LABEL_WORDS and line[-1].isalnum() and _ITEM.match(line) is None:
        return line, _BARE, ""
    return None


def below(sections: list[Section], first: int) -> Iterator[Section]:
    """Yield a section and the deeper ones right below it."""
    yield sections[first]
    for one in sections[first + 1 :]:
        if one.level <= sections[first].level or sections[first].level == LABEL:
            return
        yield one
