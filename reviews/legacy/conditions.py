"""Conditions in a review: what has to be done, and before what. English only.

An approval beside a binding condition is an approval with conditions, whatever its own line says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from reviews.legacy.layout import Page
from reviews.legacy.masks import mask
from reviews.legacy.sections import LABEL, Section, below, says_none
from reviews.legacy.terms import BINDING_TITLE, SECTION, binds
from reviews.legacy.vocabulary import head_of
from reviews.legacy.zones import heading

_OPTIONAL = re.compile(r"(?i)\b(?:suggestions?|nits?|optional|nice[\s-]to|ideas?|minor|low|cosmetic)\b")
_DUE = re.compile(
    r"(?i)\b(?:before|prior\s+to|until|no\s+later\s+than)\s+(?P<due>[^\s.,;:()]+(?:\s+[^\s.,;:()]+){0,5})"
    r"|\b(?P<stage>(?:stage|phase|gate)\s+\d\w?)\b"
)
_OPEN_BOX = re.compile(r"\W*(?:\[ \]|\u2610)\s*(?P<text>\w.*)$")
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
        if section.zone == "review" and _conditional(section.title):
            for one in below(everything, at):
                for item in one.items:
                    if not says_none(item.text) and not _is_met(item.text):
                        found[page.numbers[item.at], item.text] = _told(page.numbers[item.at], item.text, binding=True)
    for section in everything:
        for item in section.items if section.zone == "review" else ():
            if says_none(item.text):
                continue
            # "Scope: shard 0 only" is read with its label.
            named = section.title and section.level == LABEL and item.at == section.at
            whole = f"{section.title}: {item.text}" if named else item.text
            for sentence in _SENTENCES.split(whole[:_LOOKED_AT]):
                binds = _binds(sentence)
                if binds and _OPTIONAL.search(section.title):
                    binds = False
                key = (page.numbers[item.at], item.text)
                if binds is not None and key not in found:
                    found.setdefault(
                        (page.numbers[item.at], sentence), _told(page.numbers[item.at], sentence, binding=binds)
                    )
    return sorted(found.values(), key=lambda one: one.line)


def _conditional(title: str) -> bool:
    return SECTION.match(title) is not None or BINDING_TITLE.search(title) is not None


def _told(line: int, text: str, *, binding: bool) -> LegacyCondition:
    due = _DUE.search(text)
    term = (due["due"] or due["stage"]).strip() if due else None
    return LegacyCondition(line, re.sub(r"\*\*|__", "", text).strip(" *_"), term, binding)


def _is_met(text: str) -> bool:
    return re.match(r"\s*(?:\[[xX\u2713\u2714]\]|\u2705|\u2714|~~)", text) is not None


def _binds(sentence: str) -> bool | None:
    """Say whether a sentence binds (True), advises (False) or neither (None); a question and a heading do neither."""
    if sentence.rstrip().endswith("?") or heading(sentence):
        return None
    if box := _OPEN_BOX.match(sentence):
        # "[ ] Reject" beside a ticked "Approve" is a choice that was not taken.
        return True if head_of(box["text"], "weak") is None else None
    return binds(mask(sentence))
