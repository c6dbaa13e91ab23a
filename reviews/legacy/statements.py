"""Whole sentences of prose that approve: "I approve this run.", "The pilot is ready for scaling.". English only.

A sentence counts only when all of it follows one of these forms. Everything looser is left to the person who reads.
"""

from __future__ import annotations

import re

from reviews.legacy.tails import with_tail
from reviews.legacy.vocabulary import END, PURPOSE, Head, Mark, head_of

_KINDS = (
    r"run|gate|pilot|plan|stage|phase|changes?|design|approach|dataset|data|experiment|proposal|implementation"
    r"|code|diff|pr|patch"
    r"|fix|fixes|work|evaluation|spec|session|request|step|scaling|launch|training|pipeline|protocol|setup"
    r"|loader|review|system"
)
_BETWEEN = (
    r"(?!(?:the|an?|of|that|this|not|no|says?|said|reads?|claims?|opposite|reverse|other|previous|earlier|old|last"
    r"|next|is|was)\s)"
)
_THING = (
    rf"(?:(?:the|this|that|your|our)\s+(?:{_BETWEEN}[\w.-]+\s+){{0,3}}?(?:{_KINDS})(?:\s+\w?\d+\w?)?|(?:stage"
    rf"|phase|gate|step)\s+\w?\d*\w?"
    r"|everything|all\s+of\s+(?:this|it)|this|it)"
)
_OBJECT = (
    r"(?:\s+(?:of\s+)?(?:" + _THING + r"|them)(?:\s+(?:as\s+(?:is|it\s+stands|proposed|planned|submitted"
    r"|written))?)?)?"
)
_ADVERB = r"(?:(?:now|hereby|fully|formally|gladly|happily|also|therefore|thus|all|clearly|still|both)\s+)*"
_FORMS = (
    r"(?:i|we)\s+(?:am\s+|are\s+)?(?:happy\s+to\s+|glad\s+to\s+|willing\s+to\s+|able\s+to\s+|can\s+|do\s+)?"
    + _ADVERB
    + r"(?:approve|accept|sign\s+off(?:\s+on)?|endorse)"
    + _OBJECT,
    _THING
    + r"\s+(?:is|are|has\s+been|have\s+been)\s+"
    + _ADVERB
    + r"(?:approved|accepted|good\s+to\s+go|cleared|a\s+go)",
    r"(?:" + _THING + r"\s+(?:is|are|looks)\s+" + _ADVERB + r")?(?:production[\s-])?ready"
    r"(?:\s+(?:for|to)\s+(?:go\s+(?!into)|be\s+)?" + PURPOSE + r"|\s+to\s+(?:go|proceed))",
    r"(?:the\s+)?(?:approval|sign-?off|go-ahead)\s+(?:is|has\s+been)\s+" + _ADVERB + r"(?:granted|given)",
    r"(?:you|we)\s+(?:can|may|should|are\s+clear(?:ed)?\s+to|are\s+good\s+to|are\s+free\s+to)\s+(?:now\s+)?"
    r"(?:proceed|go\s+ahead|launch|scale(?:\s+up)?|ship)(?:\s+(?:to|with|on|into)\s+" + PURPOSE + r")?",
    r"(?:it\s+is\s+)?(?:safe|fine|ok|okay|clear)\s+to\s+(?:proceed|go\s+ahead|launch|scale)"
    r"(?:\s+(?:to|with)\s+" + PURPOSE + r")?",
    r"please\s+(?:proceed|go\s+ahead)(?:\s+(?:to|with)\s+" + PURPOSE + r")?",
    r"(?:i|we)\s+recommend\s+(?:proceeding|approval|approving|going\s+ahead)(?:\s+(?:to|with|of|for)\s+"
    + PURPOSE
    + r"|"
    + _OBJECT
    + r")?",
    r"(?:it's|it\s+is|this\s+is|that's)\s+an?\s+(?-i:GO|go)(?:\s+(?:from|for)\s+(?:me|us|my\s+side))?",
    r"(?:it\s+|this\s+|everything\s+)?looks\s+good\s+to\s+(?:me|go)",
)
_APPROVES = [re.compile(r"(?i)" + form + END) for form in _FORMS]
_FOR_NOW = re.compile(
    r"(?i)"
    + r"(?:it|this|the\s+(?:[\w-]+\s+){0,3}[\w-]+)\s+(?:is|are|looks)\s+"
    + _ADVERB
    + r"(?:acceptable|good\s+enough|fine|ok(?:ay)?)\s+for\s+(?:an?\s+|the\s+)?mvp"
    + END
)
_OPENING = re.compile(
    r"(?i)\s*(?:(?:overall|therefore|thus|so|hence|accordingly|finally|in\s+(?:short|summary|conclusion|total"
    r"|sum)|to\s+sum\s+up|yes"
    r"|given\s+(?:this|that|all\s+(?:this|that)|the\s+above)"
    r"|based\s+on\s+(?:this|that|the\s+(?:above|evidence|numbers|rows|results)))\s*,?\s+"
    r"|(?:after|upon|on|having)\s+(?:\w+\s+)?(?:review\w*|reading|read|checking|checked|inspect\w+"
    r"|verif\w+)[^,;:]{0,80},\s+)"
)
_SAYS = re.compile(
    r"(?i)\s*(?:so\s+)?(?:my|our|the|final)\s+(?:final\s+|overall\s+)?(?:verdict|decision|recommendation|vote"
    r"|answer|ruling)"
    r"\s+(?:is|remains|stays)\s*(?:to\s+|an?\s+|that\s+)?:?\s*(?P<value>\S.*)$"
)
_LIST_MARK = re.compile(r"^\s*(?:[-*+\u2022]\s+|\d+[.)]\s+)?[^\w\"'`\u00a4(\[<{?]*")


def approval_in(masked: str) -> tuple[Mark, int] | None:
    """Return what a sentence of prose approves and where it begins, or None when it has no known form.

    Args:
        masked: the sentence, with quoted parts masked.
    """
    lead = _LIST_MARK.match(masked)
    begin = lead.end() if lead else 0
    if (said := _SAYS.match(masked, begin)) and (head := head_of(said["value"], "weak")):
        mark = with_tail(head, said["value"][head.end :], "weak")
        return (mark, said.start("value")) if mark else None
    opening = _OPENING.match(masked, begin)
    for start in {begin, opening.end() if opening else begin}:
        for form in (_FOR_NOW, *_APPROVES):
            if hit := form.match(masked, start):
                head = Head("conditions" if form is _FOR_NOW else "approve", 0)
                mark = with_tail(head, _rest(masked[hit.end() :]), "alone")
                if mark in ("approve", "conditions"):
                    return mark, start
                return ("unclear", start) if mark == "unclear" else None
    return None


def _rest(rest: str) -> str:
    """Return what follows a form; after a full sentence a further purpose is part of it."""
    purpose = re.match(r"(?i)\s+(?:for|to|with|on|into)\s+" + PURPOSE, rest)
    return rest[purpose.end() :] if purpose else rest
