"""What keeps an approval from being read although it stands there: taken back, replaced, not meant. English only.

These words do not decide anything. A text that holds one of them beside an approval is left to the person who reads.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from reviews.legacy.layout import Page

_ADDED = re.compile(
    r"(?i)^[\s>#*_\[(-]*(?:update[ds]?|edit(?:ed)?|correction|corrected|corrigendum|addendum|postscript"
    r"|p\.?\s?s|erratum"
    r"|amend(?:ment|ed)|later(?:\s+note)?|note\s+added|retraction|revised\s+(?:decision|verdict))\b[^:]{0,40}:"
    r"|^[\s>#*_\[(-]*(?:p\.?s\.?|update|edit|addendum|correction)\b\s*(?:[-\u2013\u2014(]|\d|$)"
)
_TAKEN_BACK = re.compile(
    r"(?i)\bsuperseded\b|\bsupersed(?:es|ed)\s+(?:by|this|my|the\s+(?:above|earlier|verdict|decision|review))"
    r"|\bretract(?:s|ed|ing|ion)?\b"
    r"|\brescind\w*|\brevok\w+|\b(?:scratch|strike)\s+that\b|\bon\s+reflection\b|\bsecond\s+thoughts?\b|\bcorrect(?:ed)?\s+myself\b|\bstand\s+corrected\b|\boops\b|\bapolog\w+"
    r"|\b(?:second|closer)\s+look\b|\blook(?:ing)?\s+again\b"
    r"|\bchanged?\s+(?:my|our)\s+mind\b|\b(?:disregard|ignore|forget)\s+(?:what|my|the|this|all|everything)\b"
    r"|\bwithdr(?:aw|awn|ew|awing|awal)\b.{0,60}\b(?:approv|verdict|decision|go\b|sign)|\b(?:approv\w*|verdict"
    r"|decision|sign-?off)\b"
    r".{0,40}\b(?:withdrawn|withdraw|reversed|overturned|overruled|changed|void(?:ed)?|invalid(?:ated)?|revised"
    r"|reopened)\b"
    r"|\b(?:reversed|overturned|overruled|voided|reopened)\b.{0,40}\b(?:approv\w*|verdict|decision|go\b)"
    r"|\bno\s+longer\s+(?:valid|approve\w*|holds?|stands?|appl\w+|a\s+go|ready|agree|support|recommend)"
    r"|\bi\s+was\s+(?:wrong|mistaken|too)\b"
    r"|\bi\s+(?:overlooked|missed|misread|misjudged)\b|\bmy\s+mistake\b|\bshould\s+(?:have\s+)?(?:read|said"
    r"|been\s+(?:no|iterate|a\s+no))\b"
    r"|\bnow\s+(?:a\s+)?(?-i:NO-?GO|ITERATE|REJECT(?:ED)?|MODIFY|REVISE)|\bwas\s+(?:a\s+)?(?-i:GO|APPROVED?)\b"
    r"|\breconsider\w*"
    r"|\b(?:i|we)\s+(?:do\s+not|don't|cannot|can't|no\s+longer)\s+(?:agree|concur|endorse|believe|support"
    r"|stand\s+by|share|buy|mean)\b"
    r"|\bdisagree\w*|\b(?:lines?|verdict|sentence|statement|words?|text|paragraph|above)\s+(?:above\s+)?(?:is"
    r"|was|are|were)\s+(?:not\s+mine|"
    r"(?:the\s+)?(?:builder|author|agent)\w*)|\bnot\s+my\s+(?:own\s+)?(?:words?|verdict|decision|view|opinion"
    r"|conclusion)\b"
    r"|\btake\s+(?:it|that|this)\s+back\b|\bdecision\s+changed\b|^\W*(?:status\W+)?(?:obsolete|void|outdated"
    r"|stale|withdrawn|draft)\W*$"
    r"|\b(?:this|the)\s+(?:review|verdict|decision|approval)\s+is\s+(?:\w+\s+)?(?:obsolete|void|outdated|stale"
    r"|a\s+draft|wrong)\b"
    r"|^\W*(?:cancel(?:l)?ed|annulled|nullified|voided|suspended|halted|stopped|frozen|paused|aborted|reverted"
    r"|repealed|overridden"
    r"|replaced|expired|withdrawn|revoked|reopened)\b(?!\s+(?:rows|samples|runs|shards))"
    r"|\bnot\s+(?:the|a|my)\s+final\s+(?:verdict|decision|version)\b|\bdraft\s+(?:verdict|decision|review)\b"
)
_CAUTION = re.compile(r"(?i)\b(?:yellow|amber|red)[\s-]+light\b|\U0001f7e1|\U0001f7e0")
_BRAKE = re.compile(
    r"(?i)(?:^\W*|[.!?:]\s+)(?:stop|hold|halt|wait|pause)\b(?!\s+(?:strings?|tokens?|words?|rules?|if|when|as\s+soon|conditions?|criteria"
    r"|sequences?|immediately|times?|here)\b)(?=\s*[!.,]|\s+(?:the|everything|all|it|on|this)\b)"
)
_NOT_MEANT = re.compile(
    r"(?i)(?:\s|^)/s\b(?!/)|</s(?:arcasm)?>|\bsarcas\w+|\bjust\s+kidding\b|\bonly\s+joking\b"
    r"|\bfor\s+the\s+sake\s+of\s+argument\b"
)
_OTHER_SCRIPT = re.compile("[\u0370-\u03ff\u0400-\u04ff]")
_MIXED = re.compile(r"\w*(?:[A-Za-z][\u0370-\u03ff\u0400-\u04ff]|[\u0370-\u03ff\u0400-\u04ff][A-Za-z])\w*")
_LOOKED_AT = 1500


def doubt_in(page: Page) -> tuple[int, str] | None:
    """Return the line of a page, its own number in the file, that makes an approval doubtful, and why."""
    for at, line in enumerate(page.lines):
        if line.strip() and (why := _doubt(line[:_LOOKED_AT])):
            return page.numbers[at], why
    return None


def added_after(page: Page, line: int) -> int | None:
    """Return the line of an addition ("Update: ...") that stands below a line of the file."""
    below = (at for at, number in enumerate(page.numbers) if number > line)
    return next((page.numbers[at] for at in below if _ADDED.match(page.lines[at][:_LOOKED_AT])), None)


def _doubt(line: str) -> str:
    if _ADDED.match(line):
        return "something was added later"
    if _TAKEN_BACK.search(line):
        return "a verdict is taken back or replaced"
    if _BRAKE.search(line):
        return "a call to stop"
    if _CAUTION.search(line):
        return "a light that is not green"
    if _NOT_MEANT.search(line):
        return "words that are not meant as they stand"
    if _OTHER_SCRIPT.search(line) and _MIXED.search(unicodedata.normalize("NFKC", line)):
        return "a word of letters that only look alike"
    return ""


class Signs(NamedTuple):
    """The signs a text holds."""

    good: bool
    bad: bool
    caution: bool


def signs(text: str) -> Signs:
    """Return which signs a text holds: of approval, of refusal, of caution."""
    return Signs(*(any(one in text for one in group) for group in (_GOOD, _BAD, _CAREFUL)))


_GOOD = "\u2705\u2714\u2611\U0001f7e2\U0001f44d"
_BAD = "\u274c\u2716\U0001f534\u26d4\U0001f44e\U0001f6d1\U0001f6ab"
_CAREFUL = "\u26a0\U0001f7e1\U0001f7e0"
