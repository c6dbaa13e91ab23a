"""The phrases in which older reviews decide, and where each of them may stand. English only.

A phrase counts where a statement begins with it: as the value of a label ("Decision: GO"), or alone at the start of a
sentence ("Approved."). What follows it is judged in ``tails``; the same words anywhere else decide nothing.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Mark = Literal["approve", "conditions", "revise", "reject", "denied", "unclear", "open"]
"""``denied``: an approval is refused without saying what instead. ``unclear``: a verdict word that may mean either.
``open``: a decision that is neither, such as "option B" or a yellow light."""

Place = Literal["strong", "weak", "alone"]
"""Where a statement stands: after a label that announces a verdict, after one that may, or without any."""

END = r"(?![\w-])"
_KIND = (
    r"(?:production|scal(?:e|ing)(?:\s+up)?|merg(?:e|ing)|launch(?:ing)?|train(?:ing)?|shipping|ship"
    r"|deploy(?:ment)?|release"
    r"|runs?|stages?|phases?|steps?|gates?|pilot|sft|dpo|fine-?tuning|generation|evaluation|eval|plan(?:ned)?|proposed"
    r"|experiment|implementation|implement|execution|go|proceed|start|campaign|session|shards?|it|this)"
)
PURPOSE = (
    r"(?:(?:the|a|an|our|this|all|its|to|full|next|real|main|complete|planned|proposed|remaining|first|second"
    r"|small|large"
    r"|current|as|on|run|into)\s+){0,3}"
    + _KIND
    + END
    + r"(?:\s+(?:"
    + _KIND
    + END
    + r"|#?\d+\w?\b|(?-i:[A-Z])\b)){0,2}(?:\s+(?:to|of|with|at|on)\s+~?\d[\w.,]*"
    + r"(?:\s+(?:items|examples|rows|samples|pairs|prompts|shards|steps))?)?"
)
"""What a gate may open for: "ready for production", "proceed to the next stage"; "proceed to fix it" is none."""


class Head(NamedTuple):
    """A verdict phrase at the start of a statement, and where it ends."""

    mark: Mark
    end: int
    text: str = ""


def _any(*parts: str) -> str:
    return "(?:" + "|".join(parts) + ")"


_HEDGE = _any(
    r"condition(?:al|ally)",
    r"guarded",
    r"provisional(?:ly)?",
    r"tentative(?:ly)?",
    r"qualified",
    r"limited",
    r"partial(?:ly)?",
    r"cautious(?:ly)?",
    r"restricted",
    r"interim",
    r"soft",
    r"weak",
)
_STRESS = (
    r"(?:(?:an?|the|still|strong|clear|clearly|firm|full|fully|unconditional|definite|unanimous|hard|overall)\s+){0,3}"
)
_YES = r"(?:yes|y|true|pass(?:ed)?)(?=\s*(?:$|[.!,;:(|\u2013\u2014]|-\s))"
_NO = r"(?:no|n|false|fail(?:ed|s)?|hold|blocked|withheld|denied|declined)(?=\s*(?:$|[.!,;:(|\u2013\u2014-]))"
_APPROVES = (
    r"approve[ds]?",
    r"approval\s+(?:is\s+|has\s+been\s+)?(?:granted|given)",
    r"accepted",
    r"good\s+to\s+go",
    r"go\s+ahead",
    r"go",
    r"scale(?:\s+up)?(?:\s+to\s+~?\d[\w.,]*)?",
    r"(?:production[\s-])?ready",
    r"lgtm",
    r"looks\s+good\s+to\s+me",
    r"ship\s+it",
    r"green\s+light",
    r"proceed",
    r"clear(?:ed)?\s+to\s+proceed",
    r"sign(?:ed)?[\s-]off(?:\s+(?:granted|given))?",
    r"(?:all\s+)?fixes\s+(?:are\s+)?verified",
)
_CONDITIONS = (
    r"approv(?:e|ed|al)\s*[,(:\u2013\u2014-]*\s*(?:but\s+)?with\s+(?:[\w-]+\s+){0,3}?"
    r"(?:conditions?|notes?|changes|revisions?|safeguards?|comments?|caveats?|reservations?|nits|fixes"
    r"|suggestions|modifications"
    r"|concerns|edits|guardrails|recommendations?|recommended|follow-?ups?|improvements?|considerations"
    r"|observations|remarks|caution|care"
    r"|requirements?|obligations?)",
    r"(?:go|yes|proceed|ready|scale)\s*(?:\(\s*guarded\s*\)|[,(:\u2013\u2014-]*\s*with\s+(?:[\w-]+\s+){0,2}?"
    r"(?:conditions?|safeguards?|caveats?|guardrails|changes|notes?|caution|care|reservations?|recommendations?))",
    r"(?:acceptable|accepted?|good\s+enough|ok(?:ay)?|fine)\s+for\s+(?:an?\s+|the\s+)?(?:mvp|minimum\s+viable\s+\w+)",
    r"accept(?:ed|able)?\s+with\s+(?:[\w-]+\s+){0,2}?(?:conditions?|changes|revisions?|safeguards?|notes?|caveats?)",
    r"issues\s+found\s*[,(:;\u2013\u2014-]+\s*(?:but\s+)?(?:approv(?:e|ed|al)|accept(?:ed|able)?)",
)
_REJECTS = (r"no[\s_/-]?go", r"reject(?:ed|ion|s)?", r"veto(?:ed)?", r"unacceptable", r"disapprov(?:e[ds]?|al)")
_DENIES = (
    r"not[\s_-]+(?:yet[\s_-]+)?(?:be[\s_-]+)?(?:approved?|accepted|ready|a\s+go|go)",
    r"unapproved",
    r"(?:do\s+not|don't|cannot|can't)\s+(?:be\s+)?(?:approved?|proceed|launch|scale|merge|ship|train|accept|go)",
    r"(?:approval|sign-?off|go-ahead)\s+(?:is\s+|has\s+been\s+|was\s+|must\s+be\s+)?"
    r"(?:withheld|denied|refused|revoked|rescinded|withdrawn)",
    r"not\s+yet",
    r"stop(?:ped)?",
    r"abort(?:ed)?",
    r"hold(?:\s+off)?",
    r"blocked",
    r"fail(?:ed)?",
    r"denied",
    r"declined",
)
_REVISES = (
    r"revise\s+and\s+(?:resubmit|re-?run)",
    r"revis(?:e|ions?)(?:\s+(?:is\s+|are\s+)?(?:required|needed|requested))?",
    r"(?:major|minor)\s+(?:revisions?|changes|rework)",
    r"modif(?:y|ications?\s+(?:required|needed|requested))",
    r"iterate",
    r"re-?work",
    r"changes\s+(?:are\s+)?(?:requested|required|needed)",
    r"request(?:ing|s)?\s+changes",
    r"needs?\s+(?:more\s+|some\s+|further\s+|major\s+|minor\s+|another\s+)?"
    r"(?:work|changes|revisions?|rework|fixes|iterations?)",
    r"issues\s+found(?!\s*[,(:;\u2013\u2014-]*\s*(?:but\s+)?(?:approv|accept))",
    r"another\s+(?:iteration|round)\s+(?:is\s+)?(?:needed|required)",
)
_OPEN = (
    r"(?:yellow|amber|red|orange)[\s-]+light",
    r"investigate",
    r"abstain(?:ed)?",
    r"defer(?:red)?",
    r"escalated?",
    r"undecided",
    r"inconclusive",
    r"(?:try|use|choose|pick|take|prefer)\s+(?:\w+\s+)?(?:option|variant|alternative|plan|approach)\s+\w+",
    r"option\s+\w+",
    r"stay[\s_]with[\s_]spec",
)
"""Decisions that are neither an approval nor a refusal."""
_BY_MARK: tuple[tuple[Mark, tuple[str, ...]], ...] = (
    ("reject", _REJECTS),
    ("denied", _DENIES),
    ("conditions", _CONDITIONS),
    ("revise", _REVISES),
    ("approve", _APPROVES),
    ("open", _OPEN),
)


def _compile(parts: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(r"(?i)" + _any(*parts) + END)


_NAMED = re.compile(r"(?i)(?:approval|acceptance|yes)" + END)
_HEDGED = re.compile(r"(?i)" + _HEDGE + r"\s+(?:an?\s+)?")
_LABELLED: list[tuple[Mark, re.Pattern[str]]] = [(mark, _compile(parts)) for mark, parts in _BY_MARK]
_YES_NO: tuple[tuple[Mark, re.Pattern[str]], ...] = (
    ("approve", re.compile(r"(?i)(?:" + _YES + r"|approval|accept(?:able)?" + END + ")")),
    ("denied", re.compile(r"(?i)" + _NO)),
)
# Without a label a common word has to be shouted, or to be the whole sentence: "Modify the plot" is advice.
_LOUD = re.compile(r"[A-Z][A-Z _/-]+" + END)
_UNMISTAKABLE = re.compile(
    r"(?i)(?:approve[ds]?|approval\s+\w+|lgtm|looks\s+good\s+to\s+me|good\s+to\s+go|ship\s+it|green\s+light|accepted"
    r"|(?:all\s+)?fixes\s+(?:are\s+)?verified|no[\s_/-]?go|reject(?:ed)?|not[\s_-]+approved|unapproved"
    r"|disapproved?|veto(?:ed)?"
    r"|changes\s+(?:are\s+)?requested|request(?:ing)?\s+changes|issues\s+found.*|revise\s+and\s+\w+|not\s+ready"
    r"|(?:yellow|amber)\s+light"
    r"|(?:do\s+not|don't)\s+(?:proceed|launch|scale|merge|ship|train|approve)"
    r"|(?:approval|sign-?off|go-ahead)\s+.*|approv(?:e|ed|al)\W.*|go\s*\(.*|unacceptable"
    r"|(?:acceptable|good\s+enough)\s+for\s.*|" + _HEDGE + r"\s.*)"
)
_WHOLE = re.compile(r"\s*(?:[.!\u2705\U0001f7e2\U0001f44d]|\s)*$")
_SKIPPED = re.compile(r"(?:[^\w\"'`\u201c\u201d\u2018\u2019\u00ab\u00bb\[{<\u00a4~?(+=/!\u00ac]|\((?=\w))*")
_INTO = re.compile(
    r"(?i)(?:(?:it\s+is|it's|this\s+is|that\s+is|we\s+are|is|be|i\s+(?:would\s+)?(?:vote|say):?)\s+)?" + _STRESS
)


def head_of(value: str, place: Place) -> Head | None:
    """Return the verdict phrase that a statement begins with, or None.

    Args:
        value: the statement, with quoted parts masked.
        place: where it stands; the fewer words announce a verdict, the fewer are accepted as one.
    """
    hit = _SKIPPED.match(value)
    begin = hit.end() if hit else 0
    if place != "alone" and (into := _INTO.match(value, begin)):
        begin = into.end()
    hedge = _HEDGED.match(value, begin)
    start = hedge.end() if hedge else begin
    if hedge and (named := _NAMED.match(value, start)):
        return Head("conditions", named.end(), named.group())
    choices = [*_LABELLED, *(_YES_NO if place == "strong" else ())]
    for mark, pattern in choices:
        found = pattern.match(value, start)
        if (
            found is None
            or value.startswith("()", found.end())
            or (place == "alone" and not _stands_alone(value, begin, found))
        ):
            continue
        if hedge:
            # "limited rejection" and the like mean nothing that could be told.
            return Head("conditions" if mark in ("approve", "conditions") else "unclear", found.end(), found.group())
        return Head(mark, found.end(), found.group())
    return None


def _stands_alone(value: str, begin: int, found: re.Match[str]) -> bool:
    said = value[begin : found.end()]
    if _LOUD.fullmatch(said) or _UNMISTAKABLE.fullmatch(said):
        return True
    if _WHOLE.match(value, found.end()):
        return said.lower() not in ("go", "fail", "failed", "blocked", "hold")
    return re.match(r"(?i)(?:ready|proceed|go\s+ahead)" + END, said) is not None
