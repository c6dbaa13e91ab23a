"""The reviewer's own words: without quotes, code, requests, other speakers, and struck or commented parts."""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

_FENCE = re.compile(r"^\s{0,3}(?:[-*+]\s+)?(?P<fence>`{3,}|~{3,})")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_BOLD = re.compile(r"^\s*(?:\*\*|__)(?P<title>[^*_]{1,80}?):?(?:\*\*|__):?\s*$")
_OTHERS = re.compile(
    r"(?i)\b(?:request(?:ed)?|questions?|prompt|context|background|instructions?|task|template|example|format|builder\S*"
    r"|agent|author|implementer|developer|submitter|self-?\s?\w+|previous|prior|earlier|last|old|former|archived?|draft"
    r"|proposed\s+\w+|(?:decision|approval)\s+(?:needed|required))\b|^\W*(?:user|human|input|brief|system|claude)\W*$"
)
_SPEAKER = re.compile(
    r"(?i)^[\s*_-]*(?:user|human|system|prompt|q|questions?|requests?"
    r"|requester|context|input|builder|agent|author|implementer|developer|submitter|claude(?:\s+code)?|self-?\w+)"
    r"[*_\s]*(?:\([^)]{0,40}\)\s*)?:"
)
_PATH = re.compile(
    r"(?<![\w.-])[\w.-]*[/\\][\w./\\-]*\.\w{1,5}\b|(?<![\w-])[\w-]+\.(?:md|txt|jsonl?|py|log|ya?ml|sh)\b"
)
_QUOTES = re.compile(
    r'"[^"]{0,600}"|\u201c[^\u201d]*(?:\u201d|$)|\u00ab[^\u00bb]*(?:\u00bb|$)|(?<!\w)\'[^\'\n]{1,120}\'(?!\w)|`[^`]{1,200}`'
    r"|<(?:s|del)>.*?</(?:s|del)>|<[^<>]{1,200}>|\{[^{}]{1,200}\}|\[ \].*$"
    r"|\[(?![xX\u2713\u2714 ]\])[^\]]{1,200}\](?!\()"
)


class ReviewLine(NamedTuple):
    """One line; ``text`` is empty where someone else speaks, ``full`` has quotes and brackets, level 0: no heading."""

    number: int
    text: str
    level: int = 0
    item: bool = False
    full: str = ""


class Words(NamedTuple):
    """The reviewer's lines, all lines of the file as they were, and whether a code fence stays open at its end."""

    lines: list[ReviewLine]
    raw: list[str]
    open_fence: bool


def own_words(text: str) -> Words:
    """Return what the reviewer says in a text."""
    lines: list[ReviewLine] = []
    fence, other, hidden, before = "", 0, False, ""
    bare = _COMMENT.sub(lambda hit: re.sub(r"[^\n]", " ", hit.group()), text)
    for number, line in enumerate(bare.split("\n"), 1):
        if mark := _FENCE.match(line):
            fence = "" if fence and mark["fence"].startswith(fence) else fence or mark["fence"]
        if fence or mark:
            lines.append(ReviewLine(number, ""))
            continue
        blank = re.fullmatch(r"[\s|:=_-]*", line) is not None
        item = re.match(r"\s*(?:[-*+\u2022]\s|\d+[.)]\s|\|)", line) is not None
        indented = line.startswith(("    ", "\t")) and not before.strip() and not item
        level, title = heading(line)
        if level and (not other or level <= other):
            other = level if _OTHERS.search(title) else 0
        # A quote and another speaker end at an empty line.
        hidden = not blank and (hidden or line.lstrip().startswith(">") or (not level and bool(_SPEAKER.match(line))))
        reported_text, before = tidy(title if level else line), line
        flag = not (other or hidden or indented or blank)
        lines.append(
            ReviewLine(
                number, _QUOTES.sub("\u00a4", reported_text) if flag else "", level if flag else 0, item, reported_text
            )
        )
    return Words(lines, text.split("\n"), bool(fence))


def heading(line: str) -> tuple[int, str]:
    """Return the level and the words of a heading, 0 for any other line; a bold line is the deepest."""
    text = line.strip()
    if hit := re.match(r"(#{1,6})\s*(.*?)\s*#*$", text):
        return len(hit[1]), hit[2]
    if hit := re.match(r"(?:={3,}|-{3,})\s*(\S.*?)\s*(?:={3,}|-{3,})$", text):
        return 1, hit[1]
    bold = _BOLD.match(line)
    return (7, bold["title"]) if bold else (0, "")


def tidy(line: str) -> str:
    """Return a line without emphasis, with one kind of apostrophe and hyphen, and file names as one mark."""
    line = re.sub(r"^\s*\*\*([\w ]{4,24})\*\*\s+(?=[A-Z])", r"\1: ", line)
    line = re.sub(r"~~[^~]{1,200}~~", "", line)
    bare = re.sub(r"\*+|(?<!\w)_+(?=\w)|(?<=\w)_+(?!\w)", "", line)
    bare = re.sub(r"(?<=[A-Za-z])_(?=[A-Za-z])", " ", unicodedata.normalize("NFKC", bare))
    bare = re.sub("[\u2010\u2011]", "-", bare.replace("\u2019", "'").replace("\u2018", "'"))
    return _PATH.sub("\u00b7", bare).strip()
