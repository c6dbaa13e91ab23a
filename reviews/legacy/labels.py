"""The verdict of an older free-text review, from labels ("Verdict: GO") and plain statements ("NO-GO."). English only.

A verdict counts only behind a label or alone in a sentence. Whatever is quoted, asked, negated, planned, said by
others, contradicted or taken back is ``undetermined``, for a person to read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from reviews.legacy import phrases
from reviews.legacy.own_words import Line
from reviews.legacy.phrases import Mark

Form = Literal["label", "alone"]
Place = Literal["strong", "weak", "alone"]


class Statement(NamedTuple):
    """What one line states."""

    mark: Mark
    line: int
    form: Form
    text: str


class Paragraph(NamedTuple):
    """Lines that belong together; ``runs_on`` if the next begins in the middle of a sentence."""

    line: int
    text: str
    full: str
    level: int
    item: bool
    runs_on: bool


class Reading(NamedTuple):
    """A verdict with its line, or why there is none."""

    verdict: Literal["approve", "approve_with_conditions", "revise", "reject"] | None
    line: int | None
    confidence: Literal["high", "medium", "none"]
    why: str
    said: tuple[Statement, ...]


_LEAD, _BOLD = 30, 7
_UNFINISHED = re.compile(r"(?i)(?:-|,|\b(?:not|no|never|the|a|an|is|be|to|of|with|and|or|that|line|reads|says))$")
_LEADING = re.compile(r"^(?:[^\w\"'(\[<{?\u00a4+=~!\u00ac]|\((?=\w))*(?:(?:it's|it\s+is|this\s+is)\s+)?(?:an?\s+)?")
_DENIED = re.compile(r"(?i)\bno\W*$")
"""An approval is refused without a word on what to do instead ("Approval: no")."""
_BEGINS = re.compile(r"[^\w\u00a4]*[\w /-]{1,40}[:=|]\s")


def read_verdict(lines: Sequence[Line]) -> Reading:
    """Return the verdict that all statements agree on, unless something takes it back."""
    paragraphs = _paragraphs(lines)
    said = tuple(_statements(paragraphs))
    marks: set[Mark] = {one.mark for one in said}

    def undetermined(why: str, line: int | None = None) -> Reading:
        return Reading(None, line or (said[0].line if said else None), "none", why, said)

    if not said:
        return undetermined("no verdict in a known form")
    parts = ((one, phrases.PART.match(one.text)) for one in paragraphs)
    if any(part and (one.level or _mark(part["value"] or "", "weak")) for one, part in parts):
        return undetermined("verdicts on parts")
    if "unclear" in marks:
        return undetermined("words that may mean either", next(one.line for one in said if one.mark == "unclear"))
    if marks == {"reject", "revise"} and all(_DENIED.search(one.text) for one in said if one.mark == "reject"):
        marks = {"revise"}
    if marks == {"approve", "approve_with_conditions"}:
        marks = {"approve_with_conditions"}
    mark = marks.pop()
    if marks or mark == "unclear":
        return undetermined("statements that contradict each other")
    best = min((one for one in said if one.mark == mark), key=lambda one: (one.form != "label", one.line))
    # A title above "None" names nothing.
    empty = {one.line for one, after in pairwise(paragraphs) if one.level and phrases.NONE.match(after.text)}
    rest = [(one.line, _without(one, said)) for one in paragraphs if one.line not in empty]
    doubts = [line for line, text in rest if _doubted(text, mark)]
    doubts += [line.number for line in lines if not line.text and phrases.HIDDEN.search(line.full)]
    if doubts:
        return undetermined("something else in the file speaks against it", doubts[0])
    if mark == "approve" and any(phrases.BINDS.search(text) for _, text in rest):
        mark = "approve_with_conditions"
    return Reading(mark, best.line, "high" if best.form == "label" else "medium", "", said)


def _without(paragraph: Paragraph, stated: Sequence[Statement]) -> str:
    """Return what a paragraph says besides its statements, without choices and phrases that deny a fault."""
    text = paragraph.full
    for one in stated:
        if one.line == paragraph.line:
            text = " " if one.text == paragraph.text else text.replace(one.text, " ", 1)
    found = phrases.LABEL.match(text)
    return "" if found and not found["value"] else phrases.HARMLESS.sub(" ", phrases.CHOICE.sub(" ", text))


def _doubted(text: str, mark: Mark) -> bool:
    """Say whether words take a verdict back, or speak of another one beside an approval."""
    if phrases.TAKEN_BACK.search(text):
        return True
    if mark not in ("approve", "approve_with_conditions"):
        return False
    foreign = any(sign in text for sign in phrases.BAD) or re.search(r"[^\W\d_a-zA-Z]{2}", text)
    limits = mark == "approve" and phrases.LIMITS.search(text) and not phrases.BINDS.search(text)
    acts = phrases.ACTS.search(text) and phrases.TURNS.search(text)
    return bool(foreign or phrases.AGAINST.search(text) or limits or acts)


def _paragraphs(lines: Sequence[Line]) -> list[Paragraph]:
    """Join lines that are one sentence or one value; headings, list items and labelled lines begin anew."""
    found: list[Paragraph] = []
    open_line = False
    for line in lines:
        if not line.text:
            open_line = False
            continue
        before = found[-1] if found else None
        starts = phrases.LABEL.match(line.text) or _BEGINS.match(line.text)
        joined = before and open_line and not line.level and not line.item
        if before and joined and (not starts or _UNFINISHED.search(before.text)):
            found[-1] = before._replace(text=f"{before.text} {line.text}", full=f"{before.full} {line.full}")
            continue
        if before and line.text[:1].islower() and not starts and not line.item:
            found[-1] = before._replace(runs_on=True)
        found.append(Paragraph(line.number, line.text, line.full, line.level, line.item, False))
        open_line = not line.level
    return found


def _statements(paragraphs: Sequence[Paragraph]) -> Iterator[Statement]:
    """Yield what the paragraphs state; what may be somebody else's words or two things at once is ``unclear``."""
    label, above = "", ""
    for one in paragraphs:
        if one.level and one.level != _BOLD:
            above = ""
        found = phrases.LABEL.match(one.text)
        for stated in _of_paragraph(one, label, found):
            # Words that another line announces, or that are within its sentence, may be somebody else's.
            led = one.runs_on or (above.endswith((":", ",")) or (len(above) > _LEAD and above[-1].islower()))
            yield stated._replace(mark="unclear") if led and not label else stated
        label = (found["strong"] and "strong" or "weak") if found and not (found["value"] or "").strip() else ""
        above = "" if label or one.level else one.text


def _of_paragraph(one: Paragraph, label: str, found: re.Match[str] | None) -> Iterator[Statement]:
    """Yield what one paragraph states; ``label`` is the kind of the label that is alone above it."""
    hit = phrases.CHECKED.match(one.text) or found
    at = max(hit.start("value"), 0) if hit else 0
    value = phrases.SENTENCE_END.split(((hit["value"] or "") if hit else one.text if label else "").strip())[0]
    if value:
        strong = hit["strong"] is not None if hit and hit is found else bool(hit) or label == "strong"
        stated = one.text[: one.text.index(value, at) + len(value)]
        if re.fullmatch(r"\W*\u00a4\W*", value) and (quoted := re.search(r"[`\"']([^`\"']{2,40})[`\"']$", one.full)):
            value, stated = quoted[1], one.text
        if mark := _mark(value, "strong" if strong else "weak", stated[:at]) or ("unclear" if strong else None):
            yield Statement(mark, one.line, "label", stated)
        return
    for sentence in phrases.SENTENCE_END.split("" if found or one.item else one.text):
        if mark := _alone(sentence):
            yield Statement(mark, one.line, "alone", sentence)


def _alone(sentence: str) -> Mark | None:
    """Return what a sentence without a label states."""
    bare = re.sub(r"^[^\w\"'(\[<{?\u00a4]*", "", sentence)
    bare = re.sub(r"(?i)^(?:after|having|overall|in\s+(?:short|summary|conclusion))\b[^,.;:]{0,60},\s+", "", bare)
    for _, pattern in phrases.MARKS:
        if hit := pattern.match(bare):
            known = phrases.UNMISTAKABLE.fullmatch(hit.group())
            return _mark(bare, "alone", sentence[: len(sentence) - len(bare)]) if known else None
    return None


def _mark(value: str, place: Place, before: str = "") -> Mark | None:
    """Return what a value means with all that it holds; None where it states no verdict."""
    bare = _LEADING.sub("", value)
    if "?" in value or not re.search(r"\w", value):
        return "unclear" if place != "alone" else None
    for mark, pattern in (*phrases.MARKS, *(phrases.YES_NO if place == "strong" else ())):
        if hit := pattern.match(bare):
            return _with_rest(mark, bare[hit.end() :], place, before + value)
    return None


def _with_rest(mark: Mark, rest: str, place: Place, whole: str) -> Mark | None:
    """Return what a verdict phrase means with the rest of its paragraph."""
    if mark in ("reject", "revise"):
        if phrases.NOT_MEANT.match(rest):
            return "unclear"
        return None if place == "alone" and not phrases.REFUSAL_ENDS.match(rest) else mark
    bare = phrases.HARMLESS.sub(" ", rest)
    signs = phrases.BAD + (phrases.CAUTION if mark == "approve" else "")
    if mark == "unclear" or any(sign in whole for sign in signs) or re.match(r"\s*[=+~\u00ac<>]|\(\)", bare):
        return "unclear"
    if not re.search(r"[\w\u00a4]", bare):
        return "unclear" if phrases.TURNS.search(bare) else mark
    hit = phrases.BUT.match(bare) if mark == "approve" else None
    after = bare[hit.end() :] if hit else bare
    doubtful = any(one.search(after) for one in (phrases.TURNS, phrases.AGAINST, phrases.TAKEN_BACK))
    if hit:
        decides = re.search(r"\w", after) or hit.group().lower().endswith(("now", "only"))
        # Who says "looks good if you like leaks" is not to be taken at their word.
        meant = decides and not doubtful and not re.match(r"(?i)\W*(?:lgtm|looks)", whole)
        return "approve_with_conditions" if meant else "unclear"
    if (aside := re.match(r"\s*\(\w+(?:\W+\w+)?\W*\)", bare)) and not phrases.BINDS.search(aside.group()):
        return "unclear"
    if not phrases.REASON.match(bare) and not (mark == "approve_with_conditions" and phrases.LISTED.match(bare)):
        return None if place == "alone" and mark == "approve" else "unclear"
    if doubtful:
        return "unclear"
    return "approve_with_conditions" if mark == "approve_with_conditions" or phrases.BINDS.search(bare) else "approve"
