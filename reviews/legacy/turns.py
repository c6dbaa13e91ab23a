"""What turns a word of refusal around: negation, hypotheses, and other people's words. English only."""

from __future__ import annotations

import re

from reviews.legacy.vocabulary import Mark

REACH = 240
"""How many characters before or after a word can turn it around."""

HARMLESS = re.compile(
    r"(?i)\b(?:no|not\s+any|without(?:\s+any)?|free\s+of|zero)\s+(?:\w+\s+){0,3}?"
    r"(?:blockers?|issues?|concerns?|objections?|problems?|reservations?|findings|conditions?|doubts?"
    r"|regressions?|leak(?:s|age)?"
    r"|drift|errors?|surprises?)\b(?!\W+(?:except|but|apart|other|besides|save|if|once|provided|as\s+long|unless)\b)"
    r"|\bno\s+(?:\w+\s+){0,2}?(?:changes?|revisions?|fixes|rework)(?:\s+(?:(?:are|is)\s+)?(?:needed|required"
    r"|requested))?\b"
    r"|\bnothing\s+(?:prevents|stops|keeps|speaks\s+against|else|(?:more\s+)?to\s+add)\b"
    r"|\bnot\s+(?:a\s+)?block(?:er|ing)\b|\bnot\s+only\b"
    r"|\b(?:after|upon|having|on)\s+(?:\w+\s+)?(?:review\w*|reading|checking|inspect\w*|consider\w*|verif\w*)\b"
)
_NEGATOR = re.compile(
    r"(?i)\b(?:not|never|no|cannot|neither|nor|none|nobody|nothing|hardly|unable|refus(?:e|es|ed|ing)|against"
    r"|declin(?:e|es|ed|ing)|with(?:hold|holds|holding|held|draw|draws|drew|drawn|drawing)|retract(?:s|ed|ing)?"
    r"|revok(?:e|es|ed|ing)|rescind(?:s|ed|ing)?|den(?:y|ies|ied|ying)|oppos(?:e|es|ed|ing)|avoid|instead\s+of"
    r"|rather\s+than|short\s+of|far\s+from|fail(?:s|ed)?\s+to|premature|too\s+early|yet\s+to|hold(?:ing)?\s+off"
    r"|anything\s+but|object(?:s|ed)?|resist|nicht|kein\w*|niet|geen|jamais|senza)\b"
    r"|n't\b|\b(?:do|does|can|wo|would|should|is|are|was|could)nt\b"
)
_HYPOTHETICAL = re.compile(
    r"(?i)\b(?:would|could|might|if|once|when|until|till|unless|before|after|whether|without|flip(?:s|ped|ping)?"
    r"|towards?|path\s+to|criteria|conditions?\s+for|request(?:s|ed|ing)?|ask(?:s|ed|ing)?|seek(?:s|ing)?|awaiting"
    r"|pending|expect(?:s|ed|ing)?|hope|want(?:s|ed)?|in\s+order|needed|required|earn|reach|get\s+to|please\s+decide"
    r"|suppose|assum\w+|must\s+be\s+fixed|so\s+that|almost|nearly|imagine|argue|threshold\s+for|treat(?:ed)?|otherwise"
    r"|gets?|doubt\w*|criteri\w+|had\s+(?:the|it|this|we|there)|fear(?:s|ed)?)\b"
)
_UNREAL = re.compile(
    r"(?i)\b(?:doubt\w*|otherwise|had\s+(?:the|it|this|we|there)|gets?|criteri\w+|fear\w*|unless|suppose"
    r"|assum\w+|imagine)\b"
)
_REPORTED = re.compile(
    r"(?i)\b(?:claim(?:s|ed|ing)?|says?|said|state[sd]|report(?:s|ed)|mark(?:s|ed)|announc(?:es|ed)|previous(?:ly)?"
    r"|earlier|prior|last\s+(?:review|round|time)|formerly|already|was|were|had\s+been|builder|agent|author"
    r"|you\s+(?:approv|said|told|wrote|ask|mark|claim)\w*|reviewer|codex|gemini|they|he|she|got|according"
    r"|received|obtained|now\s+that|we\s+(?:have|had)|expected|example|e\.g|i\.e|template|placeholder"
    r"|options\s+are|choose|one\s+of|either|labell?ed|self-?\w*)\b"
)
_AFTER_DENIED = re.compile(
    r"(?i)^\W*(?:(?:is|was|has\s+been|must\s+be|remains?|are|will\s+be|status)\s+)*"
    r"(?:not\b|never\b|withheld|denied|refused|revoked|rescinded|withdrawn|premature|impossible|unwarranted"
    r"|no\b(?!\s+\w+)|false)"
)
_BUT_NOT = re.compile(r"(?i)\b(?:but|however|though|although|yet|except)\b.*(?:\b(?:not|never|no|cannot)\b|n't\b)")
NOT_MEANT_AFTER = re.compile(
    r"(?i)^\W*(?:this\s+run\s+|\w+\s+)?(?:was|were|would|could|might|isn't|is\s+not|is\s+(?:wrong|premature|too"
    r"|unjustified|unwarranted)|said|says|claims?"
    r"|according|seems|had\s+been)\b|^[^.;:]{0,40},\s*(?:said|says|claims?|wrote|thinks|according)\b"
)
"""A refusal with this behind it is told of, not given."""
_CLAUSE_END = re.compile(r"[,;:()\u2013\u2014]|\s-\s|\b(?:but|and|so|hence|therefore|thus)\b", re.IGNORECASE)
_CONDITIONAL_NEGATION = re.compile(r"(?i)\b(?:if|whether|unless|in\s+case)\b")


def turned(full: str, start: int, end: int, mark: Mark) -> Mark | None:
    """Return what a word means with what stands around it; None when it decides nothing.

    Args:
        full: the sentence.
        start: where the word begins in it.
        end: where it ends.
        mark: what the word means by itself.
    """
    before, after = full[max(0, start - REACH) : start], full[end : end + REACH]
    clause = _CLAUSE_END.split(before)[-1]
    positive = mark == "approve"
    if _REPORTED.search(before):
        # Somebody else's verdict. A denial in it is still worth a doubt.
        return "unclear" if _NEGATOR.search(before) and positive else None
    if negator := _NEGATOR.search(clause):
        if _CONDITIONAL_NEGATION.search(before[: len(before) - len(clause)] + clause[: negator.start()]):
            return None
        if (
            _NEGATOR.search(clause, negator.end())
            or (positive and _AFTER_DENIED.match(after))
            or re.search(r"(?i)\b(?:neither|nor)\b", clause)
        ):
            return "unclear"
        if positive and (NOT_MEANT_AFTER.match(after) or _UNREAL.search(before)):
            return "unclear"
        return "denied" if positive else "unclear" if mark != "denied" else None
    if _NEGATOR.search(before):
        return "unclear" if positive else None if _HYPOTHETICAL.search(before) else mark
    if positive and _AFTER_DENIED.match(after):
        return "denied"
    if _HYPOTHETICAL.search(before):
        return None
    if not positive and NOT_MEANT_AFTER.match(after):
        return "unclear"
    if positive and (_BUT_NOT.search(after) or re.match(r"(?i)\s*,?\s*(?:\w+\s+)?not\b", after)):
        return "unclear"
    return mark
