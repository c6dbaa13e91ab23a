"""The words in which older reviews decide, and what turns them around. English only.

A word is looked for in text whose quotes are masked; what negates it is looked for in the whole sentence, quotes
included, so that hiding a "not" in quotes never makes an approval.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from reviews.legacy.turns import HARMLESS, Mark, turned


class Found(NamedTuple):
    """A verdict word: what it means here, where it begins, and whether it stands at the start of its sentence."""

    mark: Mark
    start: int
    leads: bool


def _any(*parts: str) -> str:
    return "(?:" + "|".join(parts) + ")"


_WORD = r"(?<![\w-])"
_END = r"(?![\w-])"
_CONDITIONS = re.compile(
    _WORD
    + _any(
        r"approv(?:e|ed|al)\s*[,(:-]?\s*(?:but\s+)?with\s+(?:minor\s+|small\s+|a few\s+|some\s+|the following\s+)*"
        r"(?:conditions?|notes?|changes|safeguards?|comments?|caveats?|reservations?|nits|fixes|suggestions)",
        r"condition(?:al|ally)\s+(?:approv(?:e|ed|al)|go|accept(?:ed)?)",
        r"go\s*(?:\(guarded\)|[,(:-]?\s*with\s+(?:conditions?|safeguards?|caveats?|changes))",
        r"accept(?:ed|able)?\s+(?:for\s+(?:an?\s+|the\s+)?mvp|with\s+(?:minor\s+)?(?:conditions?|changes|revisions?))",
        r"guarded\s+go",
    )
    + _END,
    re.IGNORECASE,
)
_REVISE = re.compile(
    _WORD
    + _any(
        r"REVISE",
        r"MODIFY",
        r"ITERATE",
        r"(?i:request(?:s|ing)?\s+changes)",
        r"(?i:changes\s+(?:are\s+)?(?:requested|required|needed))",
        r"(?i:needs?\s+(?:work|changes|revisions?|rework|fixes))",
        r"(?i:revise\s+and\s+(?:resubmit|re-?run))",
        r"(?i:(?:must|has to|have to|should|needs to)\s+be\s+(?:revised|reworked))",
        r"(?i:revisions?\s+(?:is\s+|are\s+)?(?:required|needed))",
    )
    + _END
)
_REJECT = re.compile(
    _WORD
    + _any(
        r"(?i:no[\s-]?go)",
        r"REJECT(?:ED|S)?",
        r"(?i:(?:i|we)\s+(?:must\s+|have\s+to\s+|hereby\s+)?(?:reject|disapprove))",
        r"(?i:(?:is|are|be|remains?)\s+(?:hereby\s+)?(?:rejected|disapproved|unacceptable))",
        r"(?i:disapprov(?:e|ed|al))",
    )
    + _END
    + r"(?!\s+(?i:the\s+)?(?i:null|h0|hypothes[ie]s|samples?|examples?|rows?|completions?|pairs?|outputs?|column))"
)
_GATE_CLOSED = re.compile(
    _WORD
    + _any(
        r"gate\s+(?:must\s+|should\s+|has\s+to\s+|will\s+)?(?:stays?|remains?|is|be|keep|kept)\s+(?:closed|blocked|shut)",
        r"block(?:ers?|ing\s+issues?)\s+(?:still\s+)?remains?",
        r"(?:approval|sign-?off|go-ahead)\s+(?:is\s+|has\s+been\s+|was\s+|must\s+be\s+)?"
        r"(?:withheld|denied|refused|revoked|rescinded|withdrawn)",
        r"hold\s+off",
        r"unapproved",
    )
    + _END,
    re.IGNORECASE,
)
# Strong in prose: a sentence that says this decides something. "the approved budget" does not.
_APPROVE = re.compile(
    _WORD
    + _any(
        r"APPROVED?",
        r"GO",
        r"SCALE",
        r"READY",
        r"LGTM",
        r"(?i:(?:i|we)\s+(?:can\s+|do\s+|hereby\s+|fully\s+|gladly\s+|happily\s+)*(?:approve|accept|sign\s+off))",
        r"(?i:(?:is|are|am|be|been)\s+(?:now\s+|hereby\s+|fully\s+|formally\s+)*(?:approved|accepted))",
        r"(?i:approval\s+(?:is\s+|has\s+been\s+)?(?:granted|given))",
        r"(?i:looks\s+good\s+to\s+me)",
        r"(?i:good\s+to\s+go)",
        r"(?i:go\s+ahead)",
        r"(?i:ready\s+(?:for\s+(?:the\s+)?(?:production|scale|scaling|merge|launch|training|shipping)"
        r"|to\s+(?:proceed|scale|merge|launch|ship|train|go)))",
        r"(?i:fixes\s+(?:are\s+)?verified)",
        r"(?i:(?:safe|clear|cleared|ok|okay|fine|can|may|should|please|to)\s+(?:to\s+)?proceed)",
        r"(?i:recommend\s+proceeding)",
    )
    + _END
)
_LEADING = re.compile(
    r"(?i:(?:i\s+)?(?:approve[ds]?|accept(?:ed)?|go|proceed|ready|green\s+light|sign(?:ed)?\s+off|scale))" + _END
)
_LEADING_OTHER = re.compile(
    r"(?i:(?P<reject>reject(?:ed)?|stop|fail(?:ed)?|denied|declined|unacceptable|not\s+ready)"
    r"|(?P<revise>revise|modify|iterate|rework|changes\s+requested|issues\s+found(?!\W*(?:approv|accept))))" + _END
)
# Broad, and only to be denied: "not ready", "cannot proceed", "no approval".
_DENIABLE = re.compile(
    _WORD
    + r"(?i:approv(?:e[ds]?|ing|al)|proceed(?:ing)?|accept(?:ed|able)?|ready|sign(?:ed)?[\s-]?off|go-ahead"
    + r"|green\s+light|GO(?=\W*$|\s+(?:yet|for|with|on|to)\b)|(?-i:GO|SCALE|LGTM))"
    + _END
)
# "Proceed with option B" and "Go with a lower temperature" choose something; they do not say that the gate opens.
_OPTION = re.compile(
    r"\s+(?:(?:on|to)\s+)?(?:option|variant|plan|alternative|approach)\b"
    r"|\s+with\s+(?!(?:(?:the|a|full|this|next|planned)\s+)*(?:training|scal\w+|run|phase|stage|launch|sft|dpo|generation)\b)"
    r"|\s+(?:down|over|back|through|deeper)\b",
    re.IGNORECASE,
)
MOST = 1500
"""A longer sentence is not taken apart; it counts as unclear."""
_MARKS_BEFORE = " \t.,;:-*#>|\u2013\u2014\u2705\u26a0\u274c\U0001f7e2\U0001f534\U0001f6a8"
_ALONE = re.compile(r"\s*(?:$|[.!,;:()\u2013\u2014-]|(?:by|for|to|as|with|once|if|after)\b)")
_ORDER: tuple[tuple[re.Pattern[str], Mark], ...] = (
    (_REJECT, "reject"),
    (_GATE_CLOSED, "denied"),
    (_CONDITIONS, "conditions"),
    (_REVISE, "revise"),
)


class _Sentence:
    """One sentence while it is read; each place is taken by the first word that claims it."""

    def __init__(self, masked: str, full: str) -> None:
        self.full = HARMLESS.sub(lambda hit: " " * len(hit.group()), full)
        self.masked = "".join(one if kept != " " else " " for one, kept in zip(masked, self.full, strict=True))
        self.first = len(self.masked) - len(self.masked.lstrip(_MARKS_BEFORE))
        self.found: list[Found] = []
        self._used: list[tuple[int, int]] = []

    def take(self, hit: re.Match[str], mark: Mark, only: tuple[Mark, ...] = ()) -> None:
        """Keep what a word means here, unless its place is taken or it decides nothing."""
        start, end = hit.span()
        if any(start < stop and begin < end for begin, stop in self._used):
            return
        means = turned(self.full, start, end, mark)
        if only and means not in only:
            return
        self._used.append((start, end))
        if means is not None:
            self.found.append(Found(means, start, start == self.first))

    def alone(self, end: int) -> bool:
        """Say whether a leading word stands alone: "Approved." but not "Approved budgets are fine."."""
        return _ALONE.match(self.masked, end) is not None


def read_sentence(masked: str, full: str, *, labelled: bool) -> list[Found]:
    """Return the verdict words of one sentence with their meaning in it.

    Args:
        masked: the sentence with quoted parts blanked out; verdict words are looked for here.
        full: the sentence as it stands, of the same length; what turns a word around is looked for here.
        labelled: it is the value of a label such as "Decision:", so that its first word is meant as a verdict.
    """
    if len(masked) != len(full):
        raise ValueError(f"the masked sentence has {len(masked)} characters, the sentence {len(full)}")
    if full.rstrip().endswith("?"):
        return []
    if len(full) > MOST:
        return [Found("unclear", 0, False)]
    sentence = _Sentence(masked, full)
    hit = _LEADING_OTHER.match(sentence.masked, sentence.first)
    if hit and (labelled or sentence.alone(hit.end())):
        sentence.take(hit, "reject" if hit["reject"] else "revise")
    for pattern, mark in _ORDER:
        for hit in pattern.finditer(sentence.masked):
            sentence.take(hit, mark)
    for hit in _APPROVE.finditer(sentence.masked):
        sentence.take(hit, "unclear" if _OPTION.match(sentence.masked, hit.end()) else "approve")
    _leading(sentence, labelled)
    for hit in _DENIABLE.finditer(sentence.masked):
        sentence.take(hit, "approve", only=("denied", "unclear"))
    return sorted(sentence.found, key=lambda one: one.start)


def _leading(sentence: _Sentence, labelled: bool) -> None:
    """Read a sentence that begins with an approving word."""
    hit = _LEADING.match(sentence.masked, sentence.first)
    if hit is None:
        return
    approves = "approve" in hit.group().lower()
    if not approves and _OPTION.match(sentence.masked, hit.end()):
        return
    sure = approves or hit.group().lower() == "proceed"
    if (labelled and sure) or sentence.alone(hit.end()):
        sentence.take(hit, "approve")
    elif sure:
        sentence.take(hit, "unclear")
