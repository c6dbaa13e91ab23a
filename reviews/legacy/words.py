"""Words of refusal within prose: "this is not approved", "for me a no-go". English only.

Such words never approve anything. They may refuse, at low confidence, where the sentence is about the thing that was
judged; anywhere else they are a doubt, which keeps an approval beside them from being read. A word is looked for in
text whose quotes are masked; what negates it is looked for in the whole sentence, quotes included, so that hiding a
"not" in quotes takes nothing back.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from reviews.legacy.turns import HARMLESS, turned
from reviews.legacy.vocabulary import END, Mark


class Found(NamedTuple):
    """A word of refusal: what it means here, and where it begins."""

    mark: Mark
    start: int


def _any(*parts: str) -> str:
    return "(?:" + "|".join(parts) + ")"


MOST = 1500
"""A longer sentence is not taken apart; it counts as unclear."""
_WORD = r"(?<![\w-])"
_JUDGED = (
    r"\b(?:i|we|you|this|it|everything|nobody|(?:the|this|that|your)\s+(?:\w+\s+){0,2}?(?:run|gate|pilot|stage"
    r"|phase|plan"
    r"|design|change|proposal|experiment|approach|implementation|session|training|evaluation|launch|request"
    r"|dataset|data))\b"
)
_REVISE = re.compile(
    _WORD
    + _any(
        r"(?i:request(?:ing)?\s+changes)",
        r"(?i:changes\s+(?:are\s+)?(?:requested|required))",
        r"(?i:revise\s+and\s+(?:resubmit|re-?run))",
        r"(?i:(?:i|we)\s+(?:ask|vote|opt)\s+(?:for|to)\s+(?:another\s+(?:iteration|round)|iterate|revise"
        r"|a\s+revision))",
        r"(?i:(?:this|it|the\s+(?:run|pilot|design|plan))\s+needs\s+(?:another\s+(?:iteration|pilot|round|attempt"
        r"|run)|rework|revision"
        r"|more\s+work))",
        r"(?i:(?:this|it|the\s+(?:run|pilot|design|plan))\s+(?:must|has\s+to|needs\s+to)\s+be\s+(?:revised"
        r"|reworked|redone))",
        r"ITERATE",
        r"REVISE",
        r"MODIFY",
    )
    + END
)
_REJECT = re.compile(
    _WORD
    + _any(
        r"(?i:no-?go|no\s+go)",
        r"REJECTED",
        r"REJECT",
        r"(?i:(?:i|we)\s+(?:must\s+|have\s+to\s+|hereby\s+)?(?:reject|disapprove|veto))",
        r"(?i:" + _JUDGED + r"\s+(?:is|are|remains?)\s+(?:hereby\s+)?(?:rejected|disapproved|unacceptable))",
        r"(?i:must\s+be\s+rejected)",
    )
    + END
    + r"(?!\s+(?i:the\s+)?(?i:null|h0|hypothes[ie]s|samples?|examples?|rows?|completions?|pairs?|outputs?|column"
    + r"|items?|rate))"
)
_CLOSED = re.compile(
    _WORD
    + _any(
        r"gate\s+(?:must\s+|should\s+|has\s+to\s+|will\s+|therefore\s+)?(?:stays?|remains?|is|be|keep|kept)\s+"
        r"(?:closed|blocked|shut)",
        r"block(?:ers?|ing\s+issues?)\s+(?:still\s+)?remains?",
        r"(?:approval|sign-?off|go-ahead)\s+(?:is\s+|has\s+been\s+|was\s+|must\s+be\s+)?"
        r"(?:withheld|denied|refused|revoked|rescinded|withdrawn)",
        r"hold\s+off",
        r"unapproved",
    )
    + END,
    re.IGNORECASE,
)
# Only to be denied: "not ready", "cannot proceed", "no approval".
_DENIABLE = re.compile(
    _WORD
    + r"(?i:approv(?:e[ds]?|ing|al)|proceed(?:ing)?|accept(?:ed|able)?|ready|sign(?:ed)?[\s-]?off|go-ahead|go\s+ahead"
    + r"|green\s+light|launch|recommend|GO(?=\W*$|\s+(?:yet|for|with|on|to)\b)|(?-i:GO|SCALE|LGTM))"
    + END
)
_ABOUT_OTHER = re.compile(r"(?i)^(?:accept|ready|launch|recommend)")
# A sentence that names both ends ("GO or NO-GO") decides for neither.
_POSITIVE = re.compile(r"(?<!NO-)(?<!NO )(?<!no-)(?<!no )\b(?:GO|APPROVED?|SCALE|READY)" + END)
_TRIGGER = re.compile(
    r"(?i)no[\s-]?go|reject|disapprov|veto|gate|block|approv|sign|hold\s+off|chang|revis|iterat|modify|rework"
    r"|iteration|proceed"
    r"|accept|ready|ahead|green|\bgo\b|scale|lgtm|launch|recommend|needs|be\s+redone"
)
_ORDER: tuple[tuple[re.Pattern[str], Mark], ...] = ((_REJECT, "reject"), (_CLOSED, "denied"), (_REVISE, "revise"))


def refusals_in(masked: str, full: str) -> list[Found]:
    """Return the words of refusal in one sentence, with their meaning in it.

    Args:
        masked: the sentence with quoted parts blanked out; words are looked for here.
        full: the sentence as it stands, of the same length; what turns a word around is looked for here.

    Raises:
        ValueError: the two have different lengths.
    """
    if len(masked) != len(full):
        raise ValueError(f"the masked sentence has {len(masked)} characters, the sentence {len(full)}")
    if full.rstrip().endswith("?") or _TRIGGER.search(masked) is None:
        return []
    if len(full) > MOST:
        return [Found("unclear", 0)]
    full = HARMLESS.sub(lambda hit: " " * len(hit.group()), full)
    masked = "".join(one if kept != " " else " " for one, kept in zip(masked, full, strict=True))
    found: list[Found] = []
    used: list[tuple[int, int]] = []

    def take(hit: re.Match[str], mark: Mark | None) -> None:
        start, end = hit.span()
        if mark is not None and not any(start < stop and begin < end for begin, stop in used):
            used.append((start, end))
            found.append(Found(mark, start))

    choice = _POSITIVE.search(masked) is not None
    for pattern, mark in _ORDER:
        for hit in pattern.finditer(masked):
            means = turned(full, *hit.span(), mark)
            take(hit, "unclear" if means and choice and mark != "denied" else means)
    for hit in _DENIABLE.finditer(masked):
        means = turned(full, *hit.span(), "approve")
        if means in ("denied", "unclear") and not _is_about_it(full, hit):
            # Rows and samples are accepted or not all the time.
            means = None if hit.group().lower().startswith("accept") else "unclear"
        take(hit, means if means in ("denied", "unclear") else None)
    return sorted(found, key=lambda one: one.start)


def _is_about_it(full: str, hit: re.Match[str]) -> bool:
    """Say whether a denied word is about what was judged: "412 rows are not accepted" is not."""
    before = full[: hit.start()]
    if re.search(r"(?i)" + _JUDGED, before):
        return not _ABOUT_OTHER.match(hit.group()) or re.search(r"(?i)\b(?:it|this|i|we)\b", before) is not None
    after = full[hit.end() : hit.end() + 12]
    bare = re.match(r"(?i)\W*(?:please\s+)?(?:do\s+not|don't|not|never|no|cannot|can't)\s+(?:\w+\s+){0,2}?$", before)
    return (
        bool(bare)
        and not _ABOUT_OTHER.match(hit.group())
        or re.match(r"(?i)\W*(?:is\s+)?(?:withheld|denied)", after) is not None
    )
