"""What keeps an approval from being read although it stands there: taken back, replaced, not meant. English only.

These words do not decide anything. A text that holds one of them beside an approval is left to the person who reads.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from reviews.legacy.layout import Page

_VERDICT = (
    r"(?:approv\w*|verdict|decision|sign-?off|review|response|answer|reply|file|text|message|output|line|statement)"
)
_ADDED = re.compile(
    r"(?i)^[\s>#*_\[(-]*(?:update[ds]?|edit(?:ed)?|correction|corrected|corrigendum|addendum|postscript|p\.?\s?s"
    r"|erratum"
    r"|amend(?:ment|ed)|later(?:\s+note)?|note\s+(?:added|by|from)|retraction|revised\s+(?:decision"
    r"|verdict))\b[^:]{0,40}:"
    r"|^[\s>#*_\[(-]*(?:p\.?s\.?|update|edit|addendum|correction)\b\s*(?:[-\u2013\u2014(]|\d|$)"
    r"|^[\s>*_\[(-]*(?:p\.\s?s\.|ps\b)"
    r"|^[\s>*_\[(-]*(?:19|20)\d\d-\d\d-\d\d\b[^:|]{0,12}:\s*\D"
)
_TAKEN_BACK = (
    r"\bsuperseded\b|\bsupersed(?:es|ed)\s+(?:by|this|my|the\s+(?:above|earlier|verdict|decision|review))",
    r"\bretract(?:s|ed|ing|ion)?\b|\brescind\w*|\brevok\w+|\boverrid(?:e|es|den|ing)\b|\boverrul\w+|\brepeal\w*"
    r"|\bannul\w*",
    r"\b(?:struck|crossed)\s+out\b",
    r"\bwithdr(?:aw|awn|ew|awing|awal)\b.{0,60}\b(?:approv|verdict|decision|go\b|sign)",
    r"\b(?:approv\w*|verdict|decision|sign-?off)\b.{0,40}\b(?:withdraw\w*|reversed|overturned|changed|void(?:ed)?"
    r"|invalid\w*|revised"
    r"|reopened|expired)\b|\b(?:reversed|overturned|voided|reopened)\b.{0,40}\b(?:approv\w*|verdict|decision|go\b)",
    r"\bno\s+longer\s+(?:valid|approve\w*|holds?|stands?|appl\w+|a\s+go|ready|agree|support|recommend)"
    r"|\bnot\s+valid\b|\binvalid\b",
    r"\bnot\s+(?:the|a|my)\s+final\s+(?:verdict|decision|version)\b|\bdraft\s+(?:verdict|decision|review)\b",
    r"^\W*(?:cancel(?:l)?ed|nullified|voided|suspended|halted|stopped|frozen|paused|aborted|reverted|replaced"
    r"|expired|withdrawn|reopened)\b"
    r"(?!\s+(?:rows|samples|runs|shards))|^\W*(?:status\W+)?(?:obsolete|void|outdated|stale|withdrawn|draft)\W*$",
    r"\bnow\s+(?:a\s+)?(?-i:NO-?GO|ITERATE|REJECT(?:ED)?|MODIFY|REVISE)|\bwas\s+(?:a\s+)?(?-i:GO|APPROVED?)\b"
    r"|\bdecision\s+changed\b",
    r"\bshould\s+(?:have\s+)?(?:read|said|been\s+(?:no|iterate|a\s+no))\b|\breconsider\w*|\btake\s+(?:it|that"
    r"|this)\s+back\b",
)
_SECOND_THOUGHTS = (
    r"\b(?:scratch|strike)\s+that\b|\bon\s+reflection\b|\bsecond\s+thoughts?\b|\bcorrect(?:ed)?\s+myself\b"
    r"|\bstand\s+corrected\b",
    r"\b(?:second|closer)\s+look\b|\b(?:look|read|check)(?:ing)?\s+(?:\w+\s+)?again\b|\bre-?read(?:ing)?\b"
    r"|\boops\b|\bsorry\b|\bcalled\s+off\b|\bturned\s+out\b|\bdo\s+not\s+(?:act|rely|use\s+this|trust)\b|\bapolog\w+",
    r"\bchanged?\s+(?:my|our)\s+mind\b|\b(?:disregard|ignore|forget)\s+(?:what|my|the|this|all|everything)\b"
    r"|\bmy\s+mistake\b",
    r"\bi\s+was\s+(?:wrong|mistaken|too)\b|\bi\s+(?:overlooked|missed|misread|misjudged)\b|\btreat\s+(?:it|this"
    r"|that)\s+as\s+open\b",
    r"\b(?:i|we)\s+(?:do\s+not|don't|cannot|can't|no\s+longer)\s+(?:agree|concur|endorse|believe|support"
    r"|stand\s+by|share|buy|mean)\b",
    r"(?:\b(?:i|we)\s+(?:\w+\s+)?|^\W*)disagree\w*|\bnot\s+mine\b|\bnot\s+my\s+(?:own\s+)?(?:words?|verdict"
    r"|decision|view|opinion|conclusion)\b",
)
# What a text says of itself: that it is another's, kept for the record, made by a machine for a test.
_OF_ITSELF = (
    r"\b(?:this|that|these|the\s+above|the)\s+" + _VERDICT + r"(?:\s+above)?\s+(?:is|was|has|had|were|are)\b"
    r"(?!\s+(?:been\s+)?(?:based|about|approved|accepted|final|complete|independent|limited|bounded|unanimous"
    r"|granted|given|clear|yes|GO)\b)",
    r"\b(?:valid|actual|real|true|current|final|right)\s+" + _VERDICT + r"\s+is\s+(?:in|at|the\s+other|elsewhere)\b",
    r"\b(?:mock|simulated|dummy|fake|stubbed|fabricated|synthetic)\s+(?:\w+\s+)?"
    + _VERDICT
    + r"|\b(?:mock|simulated|dummy|fake|failing|broken|stubbed)\s+"
    r"(?:reviewer|model|process|run\s+of\s+the\s+reviewer)\b",
    r"\b(?:copied|translated|taken|pasted|quoted|excerpt\w*|forwarded|adapted)\s+from\b|\boutput\s+of\b"
    r"|\bnot\s+(?:of|by|from)\s+a\s+reviewer\b",
    r"\b(?:the\s+above|that)\s+(?:was|is)\s+(?:my|the|what|not)\b|\b(?:was|were)\s+my\s+(?:view|opinion|verdict"
    r"|impression|position)\b",
    r"\bconfidence\W{1,6}(?:low|very\s+low|0?\.[0-4]\d*|[0-4]?\d\s*%)|\bnot\s+a\s+(?:yes|go|approval|sign-?off)\b",
    r"\b(?:i|we|reviewer)\s+(?:have\s+|has\s+|did\s+|could\s+)(?:not|only)\s+(?:been\s+able\s+to\s+)?(?:read"
    r"|look\w*|check\w*|see|seen|verif\w+|open\w*"
    r"|access\w*)\b|\bno\s+evidence\b|\bbefore\s+it\s+could\b|\breviewer\s+(?:\w+\s+)?(?:crashed|failed"
    r"|is\s+the\s+author)\b",
    r"\b(?:had|has|have|with)\s+no\s+access\b|\b(?:reviewer|i|we|model)\s+(?:only\s+)?guess(?:ed|es|ing)?\b"
    r"|\bhallucinat\w+|\bgenerated\s+by\s+(?:a|the)\b",
)
# A heading or a line of a word or two that says what kind of text this is.
_KIND = re.compile(
    r"(?i)^[\W_]*(?:(?:an?|the|this|for|only|just)\s+)*(?:test|example|template|sample|mock|dummy|simulat\w+"
    r"|placeholder|draft|demo|specimen|format"
    r"|instructions?|prompt|how\s+to|minutes|expected|requested|desired|proposed|hypothetical)\b(?:\W+\w+){0,5}\W*$"
)
# A letter of the one whose work is judged.
_LETTER = re.compile(
    r"(?i)^\W*(?:from|author|written\s+by|signed|sender|by)\W+(?:the\s+)?(?:builder|author|agent|claude|developer"
    r"|implementer)\b"
    r"|^\W*(?:hi|dear|hello)\s+(?:the\s+)?(?:reviewer|codex|gemini)\b|\bthe\s+builder\W*$|\bby\s+the\s+(?:second"
    r"|other)\s+reviewer\b|\bTODO\b|\?\?"
)
_QUOTED_TERM = re.compile(
    r"(?i)^\s*>[\s>*_]*(?:conditions?|required|provided|subject\s+to|only\s+if|restrictions?|caveats?)\b"
)
_CAUTION = re.compile(r"(?i)\b(?:yellow|amber|red)[\s-]+light\b|\U0001f7e1|\U0001f7e0")
_BRAKE = re.compile(
    r"(?i)(?:^\W*|[.!?:]\s+)(?:stop|hold|halt|wait|pause)\b(?!\s+(?:strings?|tokens?|words?|rules?|if|when"
    r"|as\s+soon|conditions?"
    r"|criteria|sequences?|immediately|times?|here)\b)(?=\s*[!.,]|\s+(?:the|everything|all|it|on|this)\b)"
)
_NOT_MEANT = re.compile(
    r"(?i)(?:\s|^)/s\b(?!/)|</s(?:arcasm)?>|\bsarcas\w+|\bjust\s+kidding\b|\bonly\s+joking\b"
    r"|\bfor\s+the\s+sake\s+of\s+argument\b"
)
_WHY: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("something was added later", _ADDED),
    ("a verdict is taken back or replaced", re.compile("(?i)" + "|".join(_TAKEN_BACK))),
    ("second thoughts", re.compile("(?i)" + "|".join(_SECOND_THOUGHTS))),
    ("a text that speaks of itself", re.compile("(?i)" + "|".join(_OF_ITSELF))),
    ("a text of another kind", _KIND),
    ("a letter to the reviewer", _LETTER),
    ("a condition in a quotation", _QUOTED_TERM),
    ("a call to stop", _BRAKE),
    ("a light that is not green", _CAUTION),
    ("words that are not meant as they stand", _NOT_MEANT),
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
    for why, pattern in _WHY:
        if pattern.search(line):
            return why
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
