"""Conditions in a review: what has to be done, and before what. English only.

An approval beside a binding condition is an approval with conditions, whatever its own line says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from reviews.legacy.layout import Page
from reviews.legacy.masks import mask
from reviews.legacy.sections import Section, below, says_none
from reviews.legacy.zones import heading

_SECTION = re.compile(
    r"(?i)^\W*(?:(?:my|our|the|an?|one|two|three|four|only|sole|single|following|these)\s+){0,3}(?:(?:approval|go|launch|scaling|hard|binding|explicit|remaining|open|key)\s+)?(?:conditions?"
    r"|pre-?requisites?|pre-?conditions?"
    r"|provisos?|stipulations?|safeguards?|guard-?rails?|obligations?|caveats?"
    r"|(?:required|mandatory|necessary|requested)(?:\s+\w+){0,3}|must[\s-]*(?:fix(?:es)?|dos?|haves?"
    r"|be\s+\w+)(?:\s+\w+){0,4}"
    r"|(?:to\s+(?:do|fix)\s+|fix(?:es)?\s+|changes\s+|actions\s+|needed\s+)?(?:before|prior\s+to)\s+(?:\w+\s*){1,5}"
    r"|what\s+(?:must|has\s+to)\s+\w+(?:\s+\w+){0,4}|abort\s+(?:conditions?|criteria|if)|stop\s+(?:conditions?"
    r"|criteria|rules?))"
    r"(?:\s+(?:of|for|to|on|before|prior|until|attached|that)\b.{0,40})?\W*$"
)
_WORK = (
    r"(?:launch|scal|train|proceed|merg|ship|releas|start|spend|go(?:ing)?\b|mov|runn?|continu|deploy|generat"
    r"|evaluat|the\s+(?:full|next|real"
    r"|main|final|launch|run|gate|stage|training|scale)|full|production|next|stage|phase|sft|dpo|eval|any\s"
    r"|phase|publish|mak|claim|report)"
)
_MODAL = re.compile(
    r"(?i)\b(?:must|has\s+to|have\s+to|needs?\s+to|(?:is|are|be)\s+(?:required|mandatory)|(?:i|we)\s+require"
    r"|shall|mandatory"
    r"|(?:is|are)\s+a\s+(?:hard\s+)?(?:requirement|condition|must))\b"
)
_NO_MODAL = re.compile(
    r"(?i)\b(?:not|no\s+longer|never|nothing|no\s+\w+)\b.{0,24}\b(?:must|has\s+to|have\s+to|needs?|required?"
    r"|mandatory)\b"
    r"|\b(?:doesn't|don't|didn't|won't|isn't|aren't)\b.{0,24}\b(?:need|have|required?)\b"
    r"|\bmust\s+(?:have\s+been|stay|remain)\b|\bgate\s+must\b"
    r"|\b(?:would|could|might|had|all\s+(?:the\s+)?required|as\s+required|the\s+required|what\s+is\s+required"
    r"|if\s+(?:needed|required))\b"
)
_BINDING = re.compile(
    r"(?i)\b(?:provided(?:\s+that)?\b(?!\s+(?:by|in|here|above|as))|provid(?:ed|ing)\s+that|on\s+(?:the\s+"
    r"|one\s+)?conditions?\b|subject\s+to"
    r"|contingent\s+(?:up)?on|condition(?:al|ed)\s+(?:up)?on|(?:so|as)\s+long\s+as|with\s+the\s+proviso"
    r"|under\s+the\s+condition"
    r"|only\s+(?:if|after|once|when|then|while|as\s+long)|holds?\s+only|assuming|as\s+soon\s+as)\b"
    r"|(?<!no\s)(?<!any\s)(?<!un)\bconditions?\s*(?::|is\b|are\b)|\b(?:i|we|you)(?:'ll|\s+will)?\s+(?:still\s+|also\s+)?need\b"
    r"|\b(?:not|is|are)\s+to\s+be\b.{0,60}\b(?:before|until|unless|without)\b"
    r"|\b(?:abort|stop|halt|roll\s*back|pause|cancel|no-go)\b.{0,60}\b(?:if|when|unless|as\s+soon\s+as|should)\b"
    r"|\b(?:if|when|unless|should)\b.{0,90}\b(?:abort|halt|roll\s*back|(?:treat|count)\s+(?:it|this)"
    r"|stop\s+(?:and|the|immediately|training|at)|no-go)\b"
    r"|\b(?:do\s+not|don't|never)\b.{0,90}\b(?:until|unless|without|before)\b"
    r"|\b(?:fix|re-?run|re-?check|repair|re-?generate|re-?build|pin|add|remove|verify|confirm|re-?train"
    r"|re-?measure|clean)\b.{0,60}\bfirst\b"
)
_IF = re.compile(
    r"(?i)^\W*(?:\d+[.)]\s*)?(?:then\s+|but\s+|and\s+)?(?:if|unless|once|as\s+soon\s+as|should)\s+"
    r"(?!anything|needed|possible|desired|you\s+(?:like|want|wish)|time|not\b)"
)
_OPTIONAL = re.compile(r"(?i)\b(?:suggestions?|nits?|optional|nice[\s-]to|ideas?|minor|low|cosmetic)\b")
_FORBIDS = re.compile(r"(?i)^\W*(?:\d+[.)]\s*)?(?:please\s+)?(?:do\s+not|don't|never)\s+\w+")
_BEFORE = re.compile(r"(?i)\b(?:before|prior\s+to|until)\s+(?:you\s+|we\s+|it\s+|the\s+)?" + _WORK)
_NOTHING = re.compile(r"(?i)^\W*(?:no|nothing|none)\b|\bnot\s+(?:needed|required|necessary)\b")
_PAST = re.compile(r"(?i)\b(?:was|were|had|has\s+been|have\s+been|did|already|is\s+done)\b")
_SHOULD = re.compile(
    r"(?i)^\W*(?:\d+[.)]\s*)?(?:please\s+|also\s+|then\s+)*(?:ensure|make\s+sure|verify|confirm|re-?run"
    r"|re-?check|add|fix|log|record|keep|monitor|report"
    r"|document|pin)\b|\bshould\b"
)
_DUE = re.compile(
    r"(?i)\b(?:before|prior\s+to|until|no\s+later\s+than)\s+(?P<due>[^\s.,;:()]+(?:\s+[^\s.,;:()]+){0,5})"
    r"|\b(?P<stage>(?:stage|phase|gate)\s+\d\w?)\b"
)
_SENTENCES = re.compile(r"(?<=[.!?;])\s+")
_LOOKED_AT = 1500


class LegacyCondition(NamedTuple):
    """What an approval depends on. ``binding`` is false for advice ("should", an instruction without a term)."""

    line: int
    text: str
    due: str | None
    binding: bool


def conditions_in(page: Page, sections: Sequence[Section]) -> list[LegacyCondition]:
    """Return the conditions of a review, in the order of their lines."""
    found: dict[tuple[int, str], LegacyCondition] = {}
    everything = list(sections)
    for at, section in enumerate(everything):
        if section.zone == "review" and _SECTION.match(section.title):
            for one in below(everything, at):
                for item in one.items:
                    if not says_none(item.text) and not _is_met(item.text):
                        found[page.numbers[item.at], item.text] = _told(page.numbers[item.at], item.text, binding=True)
    for section in everything:
        for item in section.items if section.zone == "review" else ():
            for sentence in _SENTENCES.split(item.text[:_LOOKED_AT]):
                binds = _binds(sentence)
                if binds and _OPTIONAL.search(section.title):
                    binds = False
                key = (page.numbers[item.at], item.text)
                if binds is not None and key not in found:
                    found.setdefault(
                        (page.numbers[item.at], sentence), _told(page.numbers[item.at], sentence, binding=binds)
                    )
    return sorted(found.values(), key=lambda one: one.line)


def _told(line: int, text: str, *, binding: bool) -> LegacyCondition:
    due = _DUE.search(text)
    term = (due["due"] or due["stage"]).strip() if due else None
    return LegacyCondition(line, re.sub(r"\*\*|__", "", text).strip(" *_"), term, binding)


def _is_met(text: str) -> bool:
    return re.match(r"\s*(?:\[[xX\u2713\u2714]\]|\u2705|\u2714|~~)", text) is not None


def _binds(sentence: str) -> bool | None:
    """Say whether a sentence binds (True), advises (False) or neither (None)."""
    if sentence.rstrip().endswith("?") or heading(sentence):
        return None
    masked = mask(sentence)
    if _BINDING.search(masked) and not re.search(r"(?i)\bwould\b", masked):
        return True
    if _FORBIDS.match(masked) or (_IF.match(masked) and not _PAST.search(masked)):
        return True
    modal = _MODAL.search(masked)
    if modal and not _NO_MODAL.search(masked):
        return True
    if _BEFORE.search(masked) and not _PAST.search(masked) and not _NOTHING.search(masked):
        return True
    return False if _SHOULD.search(masked) else None


def binding(conditions: Sequence[LegacyCondition]) -> Iterator[LegacyCondition]:
    """Yield the conditions that bind."""
    return (one for one in conditions if one.binding)
