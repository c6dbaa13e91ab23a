"""Read what a free-text review decided: error, cut off, a verdict, or not to be told. Pure functions, English only.

The default is "undetermined". An approval is read only from a statement of a known form with a harmless rest, where
nothing else in the file speaks against it; words of the request, of the judged agent, in quotes and in code do not
count. It is reading, not understanding: irony and other languages are not seen, which is one reason why no record
opens a gate.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import Literal, NamedTuple

from reviews.legacy.conditions import LegacyCondition
from reviews.legacy.doubts import added_after, doubt_in
from reviews.legacy.faults import cut_off, failed_call
from reviews.legacy.layout import Page
from reviews.legacy.marks import Form, Seen, marks_of
from reviews.legacy.masks import mask
from reviews.legacy.vocabulary import Mark

Status = Literal["verdict", "undetermined", "transport_error", "incomplete"]
LegacyVerdict = Literal["approve", "approve_with_conditions", "revise", "reject"]
Confidence = Literal["high", "medium", "low", "none"]

MOST_MARKS = 400
_LOOKED_AT = 1500
_NO_GO = re.compile(r"(?i)no[\s_-]?go(?!o)|(?<!\w)not[\s_-]*(?:approved|a\s+go\b)")
_WORK = re.compile(
    r"(?i)(?:^|[.;:,\u2013\u2014-]\s*|\band\s+|please\s+|then\s+)(?:fix|repair|re-?run|re-?generate|re-?compute"
    r"|re-?submit|re-?build|clean"
    r"|come\s+back|ask\s+again|submit|iterate|add|remove|repeat|correct|address|split|redo)\b|\b(?:for\s+now"
    r"|not\s+yet)\b|\byet\W*$"
)
_CONFIDENCE: dict[Form, Confidence] = {
    "strong": "high",
    "weak": "medium",
    "alone": "medium",
    "stated": "medium",
    "word": "low",
}
_FORMS: tuple[Form, ...] = ("strong", "weak", "alone", "stated", "word")


class Reading(NamedTuple):
    """What was read, the line that decided it, and why nothing could be read where that is so."""

    status: Status
    verdict: LegacyVerdict | None = None
    confidence: Confidence = "none"
    line: int | None = None
    text: str = ""
    why: str = ""
    said: tuple[Seen, ...] = ()
    """Every verdict word that was seen, with the line of the file it stands in."""


def read_page(page: Page, conditions: Sequence[LegacyCondition], grave: int | None) -> Reading:
    """Read one review.

    Args:
        page: the review.
        conditions: the conditions that were found in it.
        grave: the line of a finding that no approval can stand beside, if there is one.
    """
    told = [(number, line) for number, line in zip(page.numbers, page.lines, strict=True) if line.strip()]
    if not told and page.too_long is None:
        return Reading("transport_error", text="empty")
    own = [
        (number, line)
        for number, line, zone in zip(page.numbers, page.lines, page.zones, strict=True)
        if zone == "review" and line.strip()
    ]
    if error := failed_call(own):
        return Reading("transport_error", line=error[0], text=error[1].strip())
    seen = tuple(islice((one._replace(line=page.numbers[one.line]) for one in marks_of(page)), MOST_MARKS + 1))
    if cut := cut_off(told, own, open_fence=page.open_fence):
        return Reading("incomplete", line=cut[0], text=cut[1].strip(), said=seen[:MOST_MARKS])
    if page.too_long is not None:
        return Reading("undetermined", line=page.too_long, why="a line that is too long to be read")
    if len(seen) > MOST_MARKS:
        return Reading("undetermined", why="too many verdict words")
    reading = _settled(seen)._replace(said=seen)
    if reading.verdict == "reject" and reading.confidence == "low" and _asks_for_work(seen, own, conditions):
        # "Not yet, and here is what to repair" may be a demand for changes as well as a rejection.
        reading = _undetermined(seen, reading.line, "not approved, and asks for changes")
    if reading.verdict in ("approve", "approve_with_conditions"):
        reading = _held_against(reading, page, conditions, grave)
    elif reading.verdict and (later := added_after(page, reading.line or 0)):
        reading = _undetermined(reading.said, later, "something was added later")
    if reading.line is None or reading.text:
        return reading
    return reading._replace(text=page.as_given[page.numbers.index(reading.line)].strip())


def leaning(reading: Reading) -> str | None:
    """Return ``not approved`` for a review without a verdict that refuses and approves nothing."""
    marks = {one.mark for one in reading.said if not one.scope}
    refuses = reading.status == "undetermined" and bool(marks & {"denied", "reject", "revise"})
    return "not approved" if refuses and not marks & {"approve", "conditions"} else None


def _asks_for_work(seen: Sequence[Seen], own: Sequence[tuple[int, str]], conditions: Sequence[LegacyCondition]) -> bool:
    denied = all(one.mark != "reject" for one in seen)
    return denied and (bool(conditions) or any(_WORK.search(line[:_LOOKED_AT]) for _, line in own))


def _held_against(reading: Reading, page: Page, conditions: Sequence[LegacyCondition], grave: int | None) -> Reading:
    """Return an approval with what the rest of the file does to it."""
    if doubt := doubt_in(page):
        return _undetermined(reading.said, doubt[0], doubt[1])
    for one in reading.said:
        if one.mark in ("approve", "conditions") and _NO_GO.search(mask(page.lines[page.numbers.index(one.line)])):
            return _undetermined(reading.said, one.line, "both ends in one line")
    if grave is not None:
        return _undetermined(reading.said, grave, "an approval beside a critical finding")
    if any(one.binding for one in conditions):
        return reading._replace(verdict="approve_with_conditions")
    return reading


def _undetermined(said: tuple[Seen, ...], line: int | None, why: str) -> Reading:
    return Reading("undetermined", line=line, why=why, said=said)


def _settled(seen: Sequence[Seen]) -> Reading:
    """Return the verdict that all statements agree on, if they do."""
    stated = [one for one in seen if one.form != "word" and not one.scope]
    positive = [one for one in stated if one.mark in ("approve", "conditions")]
    if any(one.form == "strong" and one.mark in ("revise", "reject", "denied") for one in stated):
        # "Good to go once it is repaired" does not stand against "Decision: REVISE".
        positive = [one for one in positive if not (one.mark == "conditions" and one.form == "stated")]
    negative = [one for one in stated if one.mark in ("revise", "reject", "denied")]
    doubtful = [one for one in seen if one.mark in ("unclear", "open") and not one.scope]
    unclear = min(doubtful, key=lambda one: one.mark == "open", default=None)
    parts = [one for one in seen if one.scope]
    said = tuple(seen)
    if positive and negative:
        return _undetermined(said, positive[0].line, "verdicts that contradict each other")
    if positive:
        against = next((one for one in seen if one.mark in ("revise", "reject", "denied")), None)
        if against:
            return _undetermined(said, against.line, "words of refusal beside an approval")
        unclear = unclear or next((one for one in parts if one.mark in ("unclear", "open")), None)
        if unclear:
            return _undetermined(said, unclear.line, "words that leave the approval open")
        kind: LegacyVerdict = (
            "approve_with_conditions" if any(one.mark == "conditions" for one in positive) else "approve"
        )
        return _verdict(kind, [one for one in positive if kind == "approve" or one.mark == "conditions"])
    if any(one.mark in ("approve", "conditions") for one in parts):
        return _undetermined(said, parts[0].line, "verdicts on parts only")
    if negative:
        if open_ := next((one for one in seen if one.mark == "unclear" and one.form != "word" and not one.scope), None):
            return _undetermined(said, open_.line, "words that leave the refusal open")
        return _refused(negative, said)
    words = [one for one in seen if one.form == "word" and one.mark not in ("unclear", "open") and not one.scope]
    # Further words about the verdict ("we flip to GO once ...") do not take a refusal back.
    open_ = unclear and (unclear.mark == "unclear" or any(one.mark == "open" and one.form != "word" for one in seen))
    if words and not open_ and not parts:
        return _refused(words, said)
    first = next((one for one in seen if one.form != "word"), next(iter(seen), None))
    why = (
        "words that may mean either" if unclear else "verdicts on parts only" if parts else "no verdict in a known form"
    )
    return _undetermined(said, first.line if first else None, why)


def _refused(found: list[Seen], said: tuple[Seen, ...]) -> Reading:
    marks: set[Mark] = {one.mark for one in found}
    if {"revise", "reject"} <= marks:
        return _undetermined(said, found[0].line, "two different refusals")
    if "revise" in marks:
        return _verdict("revise", [one for one in found if one.mark == "revise"])
    return _verdict("reject", [one for one in found if one.mark in ("reject", "denied")])


def _verdict(kind: LegacyVerdict, deciding: list[Seen]) -> Reading:
    best = min(deciding, key=lambda one: (_FORMS.index(one.form), one.line))
    return Reading("verdict", kind, _CONFIDENCE[best.form], best.line)
