"""The verdict words of a review, each with its place, its form and what it speaks of."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Literal, NamedTuple

from reviews.legacy.blocks import Block, blocks_of
from reviews.legacy.doubts import signs
from reviews.legacy.layout import Page
from reviews.legacy.masks import mask
from reviews.legacy.statements import approval_in
from reviews.legacy.tails import with_tail
from reviews.legacy.turns import HARMLESS
from reviews.legacy.vocabulary import Mark, Place, head_of
from reviews.legacy.words import refusals_in

Form = Literal["strong", "weak", "alone", "stated", "word"]
"""How a verdict stands there: after a label (two kinds), alone at the start of a sentence, as a sentence, as a word."""

_SENTENCE = re.compile(r"[.!?](?=\s|$)")
_TRIGGER = re.compile(
    r"(?i)approv|accept|\bgo\b|no[\s_/-]?go|scale|ready|lgtm|good|ship\b|green|proceed|sign|fixes|mvp|endors"
    r"|launch|clear|safe|fine"
    r"|\bok|verdict|decision|recommend|vote|answer|ruling|reject|veto|gate|block|hold|chang|revis|iterat|modif"
    r"|re-?work|needs|redone"
    r"|stop|abort|fail|den(?:y|ied)|declin|issues|not\s+yet|condition|guarded|provision|tentativ|recommend|ahead"
)
_DECISIVE = re.compile(
    r"(?i)(?:approv|reject|no[\s_/-]?go|lgtm|not\s+approv|veto|changes\s+req|request|condition)|(?-i:GO\b"
    r"|MODIFY|ITERATE|REVISE|SCALE|READY)"
)
_REVERSES = re.compile(
    r"(?i)\W*(?:(?:no|not|nope|never|wrong|false|well)\s*(?:[.,!;:]|$)|wait\b|actually\b|but\b|however\b"
    r"|unfortunately\b|sadly\b|alas\b"
    r"|hold\s+on\b|or\s+not\b|then\s+again\b|just\s+kidding\b|not\s+really\b|nah\b|as\s+if\b|dream\s+on\b|\(not\b)"
)
_TURNS = re.compile(
    r"(?i)\W*(?:then\s+again|well\W+(?:no|not)|no\W+wait|(?:no|not|nope)\s*[.,!;]|hm+\b|wait\b|actually\b"
    r"|unfortunately\b|sadly\b|alas\b"
    r"|(?:having\s+)?(?:that\s+)?said(?:\s+that)?\b|having\s+said\b|that\s+said\b|on\s+the\s+other\s+hand"
    r"|however\b|but\b|still\s*,)"
)
"""How a paragraph begins that turns against what was said before."""
_MENTIONS = re.compile(
    r"\b(?:GO|NO-GO|APPROVED?)\b|(?i:\b(?:approve[ds]?|approval|verdict|sign-?off)\b)"
    r"(?!\s+(?:budget|plan|config\w*|parameters?|hyper\w+|settings?|rate|list|set|rows|seeds?|design|spec\w*"
    r"|value|range))"
)
_SHOWN = 300
_NEAR = 24
"""A word of refusal this near to its label belongs to it: "Decision: we cannot approve"."""
_SEE_OTHER = re.compile(r"(?i)^\W*(?:see|as|cf\.?|below|above|\u00a4|n/?a\b|not\s+applicable)|^[\W_\u00a4]*$")


class Seen(NamedTuple):
    """A verdict word: ``scope`` is empty when it speaks of the whole."""

    mark: Mark
    line: int
    form: Form
    scope: str
    text: str


def marks_of(page: Page) -> Iterator[Seen]:
    """Yield the verdict words of a page in order; ``line`` counts the lines of the page from 0."""
    approved = False
    for block in blocks_of(page):
        if approved and block.form == "text" and _TURNS.match(block.lines[0][1]):
            yield Seen("unclear", block.lines[0][0], "word", "", block.lines[0][1][:_SHOWN])
        for one in _read(block, page):
            approved = approved or one.mark in ("approve", "conditions")
            yield one


def _read(block: Block, page: Page) -> Iterator[Seen]:
    full = " ".join(line for _, line in block.lines)
    masked = mask(full)
    starts: list[int] = []
    length = 0
    for _, line in block.lines:
        starts.append(length)
        length += len(line) + 1

    def seen(mark: Mark, place: int, form: Form, text: str, part: str = "") -> Seen:
        at = block.lines[bisect_right(starts, place) - 1][0]
        return Seen(mark, at, form, part or block.scope, text.strip())

    part = _part(mask(block.value), block.value) if block.value and not block.label else None
    if part:
        yield seen(part, 0, "alone", full[:300], block.part)
    begin, approved = 0, False
    for end in [*(hit.end() for hit in _SENTENCE.finditer(full)), len(full)]:
        if part and begin == 0:
            begin = end
            continue
        said, bare = full[begin:end], masked[begin:end]
        label = block.label if begin == 0 else ""
        if approved and _REVERSES.match(HARMLESS.sub(lambda hit: " " * len(hit.group()), said)):
            yield seen("unclear", begin, "word", said)
        if not label and _TRIGGER.search(said) is None:
            begin = end
            continue
        # The sign before a label is a sign of its value.
        statement = _statement(bare, said, label, block, page.lines[block.lines[0][0]] if label else said)
        if statement:
            approved = statement[0] in ("approve", "conditions")
            yield seen(statement[0], begin + statement[2], statement[1], said)
        if statement is None or statement[1] == "word" or statement[0] in ("approve", "conditions"):
            refusals = refusals_in(bare, said)
            if statement is None and not label and not refusals and _MENTIONS.search(HARMLESS.sub(" ", bare)):
                # Who goes on about the verdict may be limiting it.
                yield seen("open", begin, "word", said)
            for found in refusals:
                near = label == "strong" and statement is None and found.mark != "unclear" and found.start <= _NEAR
                yield seen(found.mark, begin + found.start, "strong" if near else "word", said)
        begin = end


def _part(masked: str, full: str) -> Mark | None:
    """Return what is said of a part ("Option A: GO"); only decisive words count, a "pass" of a check does not."""
    head = head_of(masked, "weak")
    if head is None or not _DECISIVE.search(masked[: head.end]):
        return None
    return with_tail(head, masked[head.end :].partition(". ")[0], "weak") or "unclear"


def _statement(masked: str, full: str, label: str, block: Block, line: str) -> tuple[Mark, Form, int] | None:
    """Return what a sentence states, in which form, and where it begins."""
    if full.rstrip().endswith("?"):
        return None
    sign = signs(line)
    if label in ("strong", "weak") and not re.search(r"\w", full):
        if sign.bad != sign.good and not sign.caution:
            return ("denied" if sign.bad else "approve"), "weak", 0
        return ("unclear", "weak", 0) if sign.bad or sign.caution else None
    place: Place = "strong" if label == "strong" else "weak" if label == "weak" else "alone"
    form: Form = place
    opening = re.match(HARMLESS.pattern + r"\s*[;,:\u2013\u2014-]\s*", masked.lstrip()) if label else None
    begin = opening.end() + len(masked) - len(masked.lstrip()) if opening else 0
    head = head_of(masked[begin:], place)
    mark = with_tail(head, masked[begin + head.end :], place) if head else None
    if mark is None:
        begin = 0
        stated = approval_in(masked)
        if stated:
            mark, begin = stated
            form = "stated" if place == "alone" else place
    if mark is None:
        if label == "strong" and not _SEE_OTHER.match(masked) and not refusals_in(masked, full):
            return "open", form, 0
        return None
    if block.introduced and mark != "open":
        mark = "unclear"
    if mark in ("approve", "conditions") and (sign.bad or (mark == "approve" and sign.caution)):
        mark = "unclear"
    if form == "alone" and block.form == "heading" and re.fullmatch(r"[\W_]*SCALE[\W_]*", masked):
        # A heading of this one word may be about scales.
        return "unclear", "word", begin
    if form == "alone" and block.form == "item" and not block.scope:
        # A point of a list answers one question; it speaks of the whole only under a label.
        return ("unclear", "word", begin) if mark in ("approve", "conditions") else None
    return mark, form, begin
