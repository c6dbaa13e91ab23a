"""What makes a sentence of a review a condition of its approval. English only.

Each pattern is a way of limiting, by kind: obligations, terms, bounds, words about the approval itself. They are broad
on purpose. An approval that is read with a condition too many costs a look; one with a condition too few is wrong.
"""

from __future__ import annotations

import re

_WORK = (
    r"(?:launch|scal|train|proceed|merg|ship|releas|start|spend|go(?:ing)?\b|mov|runn?|continu|deploy|generat"
    r"|evaluat|the\s+"
    r"(?:full|next|real|main|final|launch|run|gate|stage|training|scale)|full|production|next|stage|phase|sft|dpo"
    r"|eval|any\s"
    r"|publish|mak|claim|report)"
)
_VERDICT = r"(?:approval|go|decision|verdict|sign-?off|green\s+light|permission|go-ahead|clearance|recommendation)"
_STEP = (
    r"(?:scal(?:e|ing)|launch(?:ing)?|train(?:ing)?|stage\s+\w+|phase\s+\w+|the\s+(?:full\s+)?run|start(?:ing)?"
    r"|merg(?:e|ing)|" + _VERDICT + r")"
)
_REPAIR = (
    r"(?:fix|re-?run|re-?check|repair|re-?generate|re-?build|pin|add|remove|verify|confirm|re-?train|re-?measure"
    r"|clean|do|check|settle"
    r"|address|resolve|repeat|record|log)"
)
SECTION = re.compile(
    r"(?i)^\W*(?:(?:my|our|the|an?|one|two|three|four|only|sole|single|following|these)\s+){0,3}"
    r"(?:(?:approval|go|launch|scaling|hard|binding|explicit|remaining|open|key)\s+)?"
    r"(?:conditions?|pre-?requisites?|pre-?conditions?|provisos?|stipulations?|safeguards?|guard-?rails?"
    r"|obligations?|caveats?"
    r"|restrictions?|limits?|limitations\s+of\s+this\s+approval"
    r"|(?:required|mandatory|necessary|requested|must)(?:[\s-]+\w+){0,4}"
    r"|(?:to[\s-]*dos?\s+|to\s+fix\s+|fix(?:es)?\s+|changes\s+|actions\s+|needed\s+)?(?:before"
    r"|prior\s+to)\s+(?:\w+\s*){1,5}"
    r"|what\s+(?:must|has\s+to)\s+\w+(?:\s+\w+){0,4}|(?:abort|stop|kill)\s+(?:conditions?|criteria|rules?|if))"
    r"(?:\s+(?:of|for|to|on|before|prior|until|attached|that)\b.{0,40})?\W*$"
)
"""A heading below which every point is a condition."""

BINDING_TITLE = re.compile(
    r"(?i)(?<!not\s)(?<!no\s)\b(?:mandatory|required|binding|obligatory|must|blocking|conditions?|restrictions?"
    r"|provisos?|safeguards?)\b"
)
_OBLIGES = (
    r"\b(?:must|ha(?:s|ve)\s+to|needs?\s+to|(?:is|are|be)\s+(?:required|mandatory)|(?:i|we)\s+(?:require|insist"
    r"|demand)|shall|mandatory)\b",
    r"\b(?:is|are)\s+(?:a\s+(?:hard\s+)?(?:requirement|condition|must)|essential|crucial|imperative|vital"
    r"|indispensable|obligatory)\b",
    r"\b(?:i|we|you)(?:'ll|\s+will)?\s+(?:still\s+|also\s+)?need\b",
    r"\b(?:i|we)\s+(?:expect|assume|presume|count\s+on|rely|want|ask)\b|\bthis\s+(?:assumes|presumes|presupposes"
    r"|requires|depends)\b",
)
_TERMS = (
    r"\b(?:provided(?:\s+that)?\b(?!\s+(?:by|in|here|above|as))|provid(?:ed|ing)\s+that|on\s+(?:the\s+"
    r"|one\s+)?condition\b)",
    r"\b(?:subject\s+to|contingent\s+(?:up)?on|condition(?:al|ed)\s+(?:up)?on|(?:so|as)\s+long\s+as"
    r"|with\s+the\s+proviso)\b",
    r"\b(?:under\s+the\s+condition|only\s+(?:if|after|once|when|then|while|as\s+long)|holds?\s+only|assuming"
    r"|as\s+soon\s+as)\b",
    r"(?<!no\s)(?<!any\s)(?<!un)\b(?:pre-?)?conditions?\b[^.;]{0,40}?(?::|\bis\b|\bare\b)|\b(?:one|a"
    r"|single)\s+(?:string|catch|caveat"
    r"|proviso|qualification)\b",
    r"\b(?:not|is|are)\s+to\s+be\b.{0,60}\b(?:before|until|unless|without)\b|\b(?:no|not)\b.{0,60}\bwithout\b",
    r"\b(?:abort|stop|halt|roll\s*back|pause|cancel|kill|end|no-go)\b.{0,60}\b(?:if|when|unless|as\s+soon\s+as"
    r"|should)\b",
    r"\b(?:if|when|unless|should)\b.{0,90}\b(?:abort|halt|roll\s*back|(?:treat|count)\s+(?:it|this)|stop\s+(?:and"
    r"|the|training|at)|no-go)\b",
    r"\b(?:do\s+not|don't|never)\b.{0,90}\b(?:until|unless|without|before)\b",
    r"\b" + _REPAIR + r"\b[^.]{0,60}\b(?:before|prior\s+to|until|by)\s+(?:the|an?|we|you|any|next)\b",
    r"\b" + _REPAIR + r"\b.{0,60}\bfirst\b|\b(?:comes?|goes?)\s+first\b",
)
_ASKED = (
    r"^\W*(?:\d+[.)]\s*)?please\s+(?!proceed|go\s+ahead|start|launch|find|note|see)\w+|\b(?:i|we)(?:'d"
    r"|\s+would)\s+(?:like|want|prefer|love)\b",
    r"\bneeds?\s+\w+ing\b|\bgot\s+to\b|\bto\s+be\s+(?:closed|done|settled|resolved|cleared|fixed|met|added)\b"
    r"|\b(?:is|are)\s+expected\b",
    r"\b(?:hinges|depends|rests|relies)\s+(?:up)?on\b|\bunder\s+no\s+circumstances\b|^\W*first\W+" + _REPAIR + r"\b",
    r"\b(?:separate|another|new|further)\s+(?:decision|review|gate|approval)\b",
    r"\b(?:tied|bound|linked|limited|restricted)\s+to\b|\bpart\s+of\s+the\s+(?:deal|approval)\b"
    r"|\bstrings?\s+attached\b|\bmandatory\b",
    r"\b(?:terms|catch|proviso|caveats?)\s*:|\bnot\s+(?:above|over|beyond|more\s+than)\b|\bopen\s+points?\b"
    r"|\bto\s+(?:clear|close|settle)\b",
    r"\bends\s+the\b|\bmerge\s+(?:after|when|once)\b|\bthen\s+(?:continue|proceed|go\s+on|merge|scale)\b"
    r"",
)
_DIRECTED = (
    r"^\W*(?:nobody|no\s+one)\b|^\W*(?:remember|respect|observe|obey|mind)\b|\byou\s+owe\b|\b(?:i|we)\s+will\b"
    r"|\b(?:i|we)'ll\b",
    r"(?<!seems\s)(?<!appears\s)\bto\s+be\s+\w{2,}(?:ed|en|wn)\b|\bonly\s+with\b|\b(?:exit|stop|abort"
    r"|acceptance)\s+criteri(?:on|a)\b",
)
_BOUNDS = (
    r"^\W*(?:at\s+most|no\s+more\s+than|up\s+to|only|max(?:imum)?|valid|limited|restricted|capped?|scope)\b",
    r"^\W*(?:stay|keep|limit|cap|restrict|wait|kill|abort|halt|pause|cancel)\b",
    r"\b" + _STEP + r"\b.{0,40}?\b(?:requires?|needs|waits?|depends?|hinges?|assumes?|presupposes?)\b",
)
_OF_THE_APPROVAL = (
    r"\b(?:the|this|my|our)\s+"
    + _VERDICT
    + r"\s+(?:covers?|applies|holds?|lapses?|expires?|ends?|counts?|stands?|extends?|is\s+(?:for|valid|limited"
    r"|restricted|good|based\s+on\s+the\s+assumption))\b",
)
_ALWAYS = re.compile("(?i)" + "|".join((*_TERMS, *_ASKED, *_DIRECTED, *_BOUNDS, *_OF_THE_APPROVAL)))
_MODAL = re.compile("(?i)" + "|".join(_OBLIGES))
_NO_MODAL = re.compile(
    r"(?i)\b(?:not|no\s+longer|never|nothing|no\s+\w+)\b.{0,24}\b(?:must|has\s+to|have\s+to|needs?|required?"
    r"|mandatory|expect|want)\b"
    r"|\b(?:doesn't|don't|didn't|won't|isn't|aren't)\b.{0,24}\b(?:need|have|required?|expect|want)\b"
    r"|\bmust\s+(?:have\s+been|stay|remain)\b|\bgate\s+must\b|\bexpect\s+(?:no|a\s+GO|to\s+approve)\b"
    r"|\b(?:would|could|might|had|all\s+(?:the\s+)?required|as\s+required|the\s+required|what\s+is\s+required"
    r"|if\s+(?:needed|required))\b"
)
_IF = re.compile(
    r"(?i)^\W*(?:\d+[.)]\s*)?(?:then\s+|but\s+|and\s+)?(?:if|unless|once|as\s+soon\s+as|should)\s+"
    r"(?!anything|needed|possible|desired|you\s+(?:like|want|wish)|time|not\b)"
)
_FORBIDS = re.compile(r"(?i)^\W*(?:\d+[.)]\s*)?(?:please\s+)?(?:do\s+not|don't|never)\s+\w+")
_BEFORE = re.compile(r"(?i)\b(?:before|prior\s+to|until)\s+(?:you\s+|we\s+|it\s+|the\s+)?" + _WORK)
_NOTHING = re.compile(r"(?i)^\W*(?:no|nothing|none)\b|\bnot\s+(?:needed|required|necessary)\b")
_NOT_NEEDED = re.compile(r"(?i)^\W*(?:no|nothing|none)\b.*\b(?:needed|required|necessary)\b")
_PAST = re.compile(r"(?i)\b(?:was|were|had|has\s+been|have\s+been|did|already|is\s+done)\b")
_SHOULD = re.compile(
    r"(?i)^\W*(?:\d+[.)]\s*)?(?:please\s+|also\s+|then\s+)*(?:ensure|make\s+sure|verify|confirm|re-?run|re-?check"
    r"|add|fix|log|record|keep"
    r"|monitor|report|document|pin)\b|\bshould\b"
)


def binds(sentence: str) -> bool | None:
    """Say whether a sentence, with quoted parts masked, binds (True), advises (False) or neither (None)."""
    if _NOT_NEEDED.search(sentence):
        return None
    if _ALWAYS.search(sentence) and not re.search(r"(?i)\bwould\b", sentence) and not _PAST.search(sentence):
        return True
    if _FORBIDS.match(sentence) or (_IF.match(sentence) and not _PAST.search(sentence)):
        return True
    if _MODAL.search(sentence) and not _NO_MODAL.search(sentence):
        return True
    if _BEFORE.search(sentence) and not _PAST.search(sentence) and not _NOTHING.search(sentence):
        return True
    return False if _SHOULD.search(sentence) else None
