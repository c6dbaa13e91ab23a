"""Texts that are not reviews: messages of failed calls, and answers that were cut off or never filled in."""

from __future__ import annotations

import re
from collections.abc import Sequence

from reviews.legacy.own_words import heading

_LOOKED_AT = 400
_TIMESTAMP = re.compile(r"^\W{0,3}\d{4}-\d\d-\d\d[T ][\d:.,Z+-]+\W{0,3}")
_CRASH = re.compile(
    r"(?i)^\s*(?:Traceback \(most recent call last\)|(?:Error:\s*)?stdout is not a terminal|thread '.*' panicked at"
    r"|panic:|Segmentation fault|HTTP/\d(?:\.\d)?\s+[45]\d\d|fatal(?:\s+error)?:|Unhandled(?:\s+\w+)*\s*"
    r"(?:exception|rejection))|^\s+at\s+\S.{0,200}:\d+:\d+\)?\s*$|\bcore dumped\b"
)
_FAILURE = re.compile(
    r"(?i)^\W*(?:(?-i:ERROR|FATAL)\b|\[?(?:error|exception)\]?\s*[:\-]|\w*(?:Error|Exception|Timeout)\s*:|(?:bash|sh|zsh):\s"
    r"|(?:[\w/]+:\s)*(?:command not found|no such file|permission denied)"
    r"|(?:request|connection|stream|process|command|call|api)\s+(?:has\s+|was\s+)?"
    r"(?:timed\s+out|failed|refused|reset|aborted|disconnected|error|terminated|killed)"
    r"|time(?:d\s)?out\s*(?:after|waiting|error|\W*$)|(?:killed|terminated|aborted)\W*$"
    r"|(?:http\s+)?(?:status\s+)?(?:code\s+)?[45]\d\d\s+(?:bad|unauth|forb|not\s|too|int|serv|gate|err|pay|req|you\s)|(?:http(?:\s+status)?|(?:exit|status)\s+code)\s*:?\s*[1-9]\d{0,2}\b"
    r"|rate\s+limit(?:ed|\s+(?:exceeded|reached|hit))|too\s+many\s+requests|quota\s+exceeded|exceeded\s+.*quota|insufficient_quota"
    r"|overloaded(?:_error)?\b|econn\w+|etimedout|service\s+unavailable|bad\s+gateway)"
)
_PLACEHOLDER = re.compile(
    r"(?i)^\W*(?:todo|tbd|fill\s+in|placeholder)\b\W*(?::.*)?$|\[(?:todo|tbd)\b[^\]]*\]|:\s*(?:todo|tbd)\W*$"
)
_CUT = re.compile(
    r"(?i)(?:\.\.\.|\u2026|\[?(?:truncated|cut\s+off|output\s+truncated)\W*|\bTODO|\bTBD|[,(\[{:\u2013\u2014-]|\*\*\w+|<\w*|^\W*\d+[.)]?"
    r"|(?<![\w/])(?-i:and|or|the|a|an|of|to|with|because|for|but|in|by|which|if|should|must|from|its))\s*$"
)
_SHORT, _LONG_LINE = 4, 80

Numbered = tuple[int, str]


def failed_call(own: Sequence[Numbered]) -> Numbered | None:
    """Return the line that shows a failed call: a crash anywhere, a lesser failure at either end or in a short text."""
    near = own if len(own) <= _SHORT else (own[0], own[-1])
    found = [one for one in own if _CRASH.search(one[1][:_LOOKED_AT])]
    found += [one for one in near if not heading(one[1])[0] and _FAILURE.match(_TIMESTAMP.sub("", one[1][:_LOOKED_AT]))]
    return found[0] if found else None


def cut_off(own: Sequence[Numbered], last: Numbered, *, open_fence: bool) -> Numbered | None:
    """Return the line that shows that the text was cut off or never filled in.

    ``own`` are the reviewer's lines that are not empty, ``last`` is the last such line of the file.
    """
    unfilled = next((one for one in own if _PLACEHOLDER.search(one[1][:_LOOKED_AT])), None)
    ends_early = bool(own) and own[-1] == last and _ends_early(last[1][-_LOOKED_AT:].rstrip())
    return unfilled or (last if open_fence or ends_early else None)


def _ends_early(line: str) -> bool:
    """Say whether a last line is cut within a word, a sentence, a list or a heading that has nothing below it."""
    if re.fullmatch(r"\W+", line):
        # A rule or an emoji ends a text as well as a full stop.
        return line[-1] in ",(["
    level, title = heading(line)
    if 0 < level < 7:
        return bool(re.fullmatch(r"(?i)(?:approval|decision|verdict|summary|findings|recommendations?)\W*", title))
    if _CUT.search(line) or line.count("**") % 2:
        return True
    prose = re.match(r"\s*(?:[-*+\u2022|]|\d+[.)]|\w+:)\s", line) is None
    return prose and len(line) >= _LONG_LINE and line[-1].isalnum()
