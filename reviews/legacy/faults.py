"""Texts that are no reviews: the message of a call that failed, and what was cut off or never filled in."""

from __future__ import annotations

import re
from collections.abc import Sequence

from reviews.legacy.vocabulary import head_of
from reviews.legacy.zones import heading

_LOOKED_AT = 400
"""Characters of a line that are looked at."""
_TIMESTAMP = re.compile(r"^\W{0,3}\d{4}-\d\d-\d\d[T ][\d:.,Z+-]+\W{0,3}")
_CRASH = re.compile(
    r"(?i)^\s*(?:Traceback \(most recent call last\)|(?:Error:\s*)?stdout is not a terminal|thread '.*' panicked at"
    r"|panic:|Segmentation fault|HTTP/\d(?:\.\d)?\s+[45]\d\d|<!doctype html|<html\b"
    r"|\{\s*\"(?:error|detail)\"\s*:|fatal(?:\s+error)?:|Unhandled(?:\s+\w+)*\s*(?:exception|rejection))"
    r"|^\s+at\s+\S.{0,200}:\d+:\d+\)?\s*$|\bcore dumped\b"
)
_FAILURE = re.compile(
    r"(?i)^\W*(?:(?-i:ERROR|FATAL)\b|\[?(?:error|exception)\]?\s*[:\-]|\w*(?:Error|Exception|Timeout)\s*:"
    r"|(?:[\w/]+:\s)*(?:command not found|no such file|permission denied)|(?:bash|sh|zsh):\s"
    r"|(?:request|connection|stream|process|command|call|api)\s+(?:has\s+|was\s+)?"
    r"(?:timed\s+out|failed|refused|reset|aborted|disconnected|error|terminated|killed)"
    r"|time(?:d\s)?out\s*(?:after|waiting|error|\W*$)|(?:killed|terminated|aborted)\W*$"
    r"|(?:http\s+)?(?:status\s+)?(?:code\s+)?[45]\d\d\s+"
    r"(?:bad|unauthori[sz]ed|forbidden|not|too|internal|service|gateway|error|payload|request)"
    r"|(?:http(?:\s+status)?|(?:exit|status)\s+code)\s*:?\s*[1-9]\d{0,2}\b"
    r"|rate\s+limit(?:ed|\s+(?:exceeded|reached|hit))|too\s+many\s+requests|quota\s+exceeded|exceeded\s+.*quota"
    r"|insufficient_quota|overloaded(?:_error)?\b|econn\w+|etimedout|service\s+unavailable|bad\s+gateway)"
)
_CUT = re.compile(
    r"(?i)(?:\.\.\.|\u2026|\[?(?:truncated|cut\s+off|output\s+truncated)\W*|\[(?:todo|tbd|fill\s+in)[^\]]*\]"
    r"|\bTODO|\bTBD"
    r"|[,(\[{\u2013\u2014-]|\*\*\w+|<\w*|^\W*\d+[.)]?"
    r"|(?<![\w/])(?-i:and|or|the|a|an|of|to|with|because|for|but|in|by|which|if|should|must|from|its))\s*$"
)
_PLACEHOLDER = re.compile(r"(?i)^\W*(?:todo|tbd|fill\s+in|placeholder)\W*$|\[(?:todo|tbd)\b[^\]]*\]")
_SHORT = 4
_LONG_LINE = 80

Numbered = tuple[int, str]


def failed_call(own: Sequence[Numbered]) -> Numbered | None:
    """Return the line that shows a failed call: a crash anywhere, a lesser failure at either end or in a short text."""
    for number, line in own:
        if _CRASH.search(line[:_LOOKED_AT]):
            return number, line
    near = own if len(own) <= _SHORT else (own[0], own[-1])
    return next(((number, line) for number, line in near if heading(line) is None and _fails(line)), None)


def cut_off(told: Sequence[Numbered], own: Sequence[Numbered], *, open_fence: bool) -> Numbered | None:
    """Return the line that shows that the text was cut off or never filled in.

    Args:
        told: every line that is not empty.
        own: those of them that are the reviewer's.
        open_fence: a code fence was never closed.
    """
    for number, line in own:
        if _PLACEHOLDER.search(line[:_LOOKED_AT]):
            return number, line
    ends = bool(own) and own[-1] == told[-1]
    return told[-1] if open_fence or (ends and _ends_early(told[-1][1])) else None


def _fails(line: str) -> bool:
    return _FAILURE.match(_TIMESTAMP.sub("", line[:_LOOKED_AT])) is not None


def _ends_early(line: str) -> bool:
    """Say whether a last line is cut within a word, a sentence, a list or a heading that has nothing below it."""
    line = line[-_LOOKED_AT:].rstrip()
    if re.fullmatch(r"\W+", line):
        # A rule or an emoji ends a text as well as a full stop.
        return line[-1] in ",(["
    head = heading(line)
    if head is not None and head.level < 7:
        if head_of(head.title, "alone"):
            return False
        return len(head.title.split()) <= 1 or head.title.endswith(":")
    if _CUT.search(line) or line.endswith(":") or line.count("**") % 2:
        return True
    prose = re.match(r"\s*(?:[-*+\u2022|]|\d+[.)]|\w+:)\s", line) is None
    return prose and len(line) >= _LONG_LINE and line[-1].isalnum()
